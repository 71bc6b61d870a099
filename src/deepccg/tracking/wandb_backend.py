"""Weights & Biases; its own variables (``WANDB_PROJECT``, ``WANDB_MODE``, ...) apply."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import wandb

from deepccg.core import InputError
from deepccg.tracking.tracker import Described, Point


class WandbStore:
    """A run of W&B, continued under its id; steps that it has by now it does not take again.

    Offline nothing can be continued: the files of an interrupted attempt make way for those of the
    next, which is told everything.
    """

    errors: tuple[type[Exception], ...] = (wandb.Error, OSError)

    def __init__(self, described: Described) -> None:
        offline = os.environ.get("WANDB_MODE") == "offline"
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "deepccg"),
                id=described.identity,
                resume=None if offline else "allow",
                name=described.title,
                config=dict(described.parameters),
                dir=str(described.directory),
            )
        except self.errors as error:
            reason = " ".join(str(error).split())
            raise InputError(f"Weights & Biases cannot be used: {reason}") from None
        self._from = self._run.step
        own = Path(self._run.dir).parent
        # Of two in one second the later has a number behind the id.
        for attempt in own.parent.glob(f"offline-run-*-{described.identity}*"):
            if attempt != own:
                shutil.rmtree(attempt, ignore_errors=True)

    def send(self, points: Sequence[Point]) -> None:
        """Keep these points."""
        for point in points:
            if point.step >= self._from:
                self._run.log(dict(point.values), step=point.step)

    def close(self, *, finished: bool) -> None:
        """The run is finished, or was interrupted and may go on."""
        self._run.finish(exit_code=0 if finished else 1)
