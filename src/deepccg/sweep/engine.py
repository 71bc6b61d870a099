"""What an engine is: something that takes orders and tells what becomes of them."""

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from deepccg.sweep.execute import Answer, Order


@dataclass(frozen=True)
class Began:
    """An attempt began."""

    number: int


@dataclass(frozen=True)
class Moved:
    """A run got on."""

    number: int
    step: int
    steps: int


@dataclass(frozen=True)
class Ended:
    """An attempt ended."""

    number: int
    answer: Answer


Event: TypeAlias = Began | Moved | Ended


class Engine(Protocol):
    """Does orders somewhere. Leaving its context ends everything at once."""

    def submit(self, number: int, order: Order) -> None:
        """Have an order done when there is room; the number will name it."""

    def next_event(self, seconds: float) -> Event | None:
        """What happened; ``None`` if nothing did for that long."""

    def stop(self) -> None:
        """Have all runs save and end: each that has begun still tells its ``Ended``."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
