"""TensorBoard: event files in run directories, so that ``tensorboard --logdir runs`` has all."""

from collections.abc import Sequence
from typing import ClassVar

from torch.utils.tensorboard import SummaryWriter

from deepccg.core import InputError
from deepccg.tracking.tracker import Described, Point


class TensorboardStore:
    """One event file with the whole run: files of interrupted attempts make way for it.

    A TensorBoard that is looking on keeps what it has read; the new file tells it to forget that.
    """

    errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)

    def __init__(self, described: Described) -> None:
        try:
            for old in described.directory.glob("events.out.tfevents.*"):
                old.unlink()
            self._writer = SummaryWriter(str(described.directory), purge_step=0)
        except OSError as error:
            raise InputError(f"cannot write {error.filename}: {error.strerror}") from None
        rows = [f"| {name} | `{value}` |" for name, value in described.parameters.items()]
        self._writer.add_text("config", "\n".join(["| field | value |", "| --- | --- |", *rows]))

    def send(self, points: Sequence[Point]) -> None:
        """Keep these points, on disk."""
        for point in points:
            for name, value in point.values.items():
                self._writer.add_scalar(name, value, point.step)
        self._writer.flush()

    def close(self, *, finished: bool) -> None:  # noqa: ARG002  (an event file does not say)
        """Close the file."""
        self._writer.close()
