"""TensorBoard: an event file in each run directory, for ``tensorboard --logdir runs``."""

from collections.abc import Sequence
from typing import ClassVar

from torch.utils.tensorboard import SummaryWriter

from deepccg.core import InputError
from deepccg.tracking.tracker import MetricPoint, RunInfo


class TensorboardBackend:
    """One event file with the whole run, which replaces those of interrupted attempts.

    A TensorBoard that is open keeps what it has read; ``purge_step`` makes it drop that.
    """

    errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)

    def __init__(self, info: RunInfo) -> None:
        try:
            for old in info.directory.glob("events.out.tfevents.*"):
                old.unlink()
            self._writer = SummaryWriter(str(info.directory), purge_step=0)
        except OSError as error:
            raise InputError(f"cannot write {error.filename}: {error.strerror}") from None
        rows = [f"| {name} | `{value}` |" for name, value in info.parameters.items()]
        self._writer.add_text("config", "\n".join(["| field | value |", "| --- | --- |", *rows]))

    def send(self, points: Sequence[MetricPoint]) -> None:
        """Write these points to disk."""
        for point in points:
            for name, value in point.values.items():
                self._writer.add_scalar(name, value, point.step)
        self._writer.flush()

    def close(self, *, finished: bool) -> None:  # noqa: ARG002  (event files have no such mark)
        """Close the file."""
        self._writer.close()
