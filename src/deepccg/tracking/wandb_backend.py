"""Weights & Biases; ``WANDB_PROJECT``, ``WANDB_MODE`` and its other variables apply."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import wandb

from deepccg.core import InputError
from deepccg.tracking.tracker import MetricPoint, RunInfo


class WandbBackend:
    """A run of W&B, continued under its id; steps that it already has are not sent again.

    Offline nothing can be continued: the next attempt sends everything, and its files replace those
    of the interrupted one.
    """

    errors: tuple[type[Exception], ...] = (wandb.Error, OSError)

    def __init__(self, info: RunInfo) -> None:
        offline = os.environ.get("WANDB_MODE") == "offline"
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "deepccg"),
                id=info.identity,
                resume=None if offline else "allow",
                name=info.title,
                config=dict(info.parameters),
                dir=str(info.directory),
            )
        except self.errors as error:
            reason = " ".join(str(error).split())
            raise InputError(f"Weights & Biases cannot be used: {reason}") from None
        self._first_step = self._run.step
        own = Path(self._run.dir).parent
        # The second of two in the same second has a number after its id.
        for attempt in own.parent.glob(f"offline-run-*-{info.identity}*"):
            if attempt != own:
                shutil.rmtree(attempt, ignore_errors=True)

    def send(self, points: Sequence[MetricPoint]) -> None:
        """Store these points."""
        for point in points:
            if point.step >= self._first_step:
                self._run.log(dict(point.values), step=point.step)

    def close(self, *, finished: bool) -> None:
        """Mark the run as finished, or as interrupted."""
        self._run.finish(exit_code=0 if finished else 1)
