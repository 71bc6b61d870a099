"""Weights & Biases; its own variables (``WANDB_PROJECT``, ``WANDB_MODE``, ...) apply."""

import os
from collections.abc import Sequence

from deepccg.tracking.points import Point
from deepccg.tracking.store import Described


class WandbStore:
    """A run of W&B, continued under its id; steps that it has by now it does not take again."""

    def __init__(self, described: Described) -> None:
        import wandb

        self.errors: tuple[type[Exception], ...] = (wandb.Error, OSError)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "deepccg"),
            id=described.identity,
            resume="allow",
            name=described.title,
            config=dict(described.parameters),
            dir=str(described.directory),
        )
        self._from = self._run.step

    def send(self, points: Sequence[Point]) -> None:
        """Keep these points."""
        for point in points:
            if point.step >= self._from:
                self._run.log(dict(point.values), step=point.step)

    def close(self, *, finished: bool) -> None:
        """The run is finished, or was interrupted and may go on."""
        self._run.finish(exit_code=0 if finished else 1)
