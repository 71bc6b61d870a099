"""How a sweep gets on: the count of it, and its face, a live table on a terminal or lines."""

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deepccg.sweep.job import Answer

MOST_LINES = 16  # of the live table; a machine may have a hundred processors
LEAST_MADE = 0.02  # of a run


@dataclass
class Going:
    """A run in progress.

    Args:
        began: When, by the monotonic clock.
        step: The last step done.
        steps: All steps; 0 before the first.
        first: The first step that was done here, later than 1 if the run was continued.
    """

    began: float
    step: int = 0
    steps: int = 0
    first: int = 0

    @property
    def share(self) -> float:
        """How much of the run is done."""
        return self.step / self.steps if self.steps else 0.0

    @property
    def made(self) -> float:
        """How much of the run was done here."""
        return (self.step - self.first + 1) / self.steps if self.steps else 0.0


class Board:
    """Keeps count and shows nothing.

    Args:
        runs: How many are to be done.
        already: How many were finished before.
    """

    def __init__(self, runs: int, already: int) -> None:
        self.runs = runs
        self.already = already
        self.done = 0
        self.failed = 0
        self.going: dict[str, Going] = {}
        self._began = time.monotonic()
        self._made = 0.0  # runs' worth of steps, of attempts that ended

    def began(self, name: str) -> None:
        """A run was given to a worker."""
        self.going[name] = Going(time.monotonic())

    def moved(self, name: str, step: int, steps: int) -> None:
        """A run did a step."""
        run = self.going[name]
        run.first = run.first or step
        run.step, run.steps = step, steps

    def ended(self, name: str, answer: Answer, *, again: bool) -> None:
        """An attempt ended; ``again`` if there will be another."""
        run = self.going.pop(name)
        done = answer.status in ("finished", "already")
        self._made += run.made + (1 - run.share if done else 0)
        self.done += done
        self.failed += answer.status == "failed" and not again

    def stopping(self) -> None:
        """The sweep was asked to stop."""

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; ``None`` before one can be told from the time it takes to start."""
        made = self._made + sum(run.made for run in self.going.values())
        left = self.runs - self.done - self.failed - sum(run.share for run in self.going.values())
        return (time.monotonic() - self._began) * left / made if made > LEAST_MADE else None

    @property
    def headline(self) -> str:
        """All of it in one line."""
        parts = [f"{self.done} of {self.runs} runs done"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.already} finished before"] if self.already else []
        left = self.seconds_left
        parts += [f"about {duration(left)} left"] if left else []
        return ", ".join(parts)


class Lines(Board):
    """A line for each run that begins or ends, for logs."""

    def __init__(self, runs: int, already: int, console: Console) -> None:
        super().__init__(runs, already)
        self._console = console
        if already:
            self._say(f"finished before: {already}; to do: {runs}")

    def began(self, name: str) -> None:
        """As ``Board.began``."""
        super().began(name)
        self._say(f"begins    {name}")

    def ended(self, name: str, answer: Answer, *, again: bool) -> None:
        """As ``Board.ended``."""
        took = duration(time.monotonic() - self.going[name].began)
        super().ended(name, answer, again=again)
        self._say(f"{answer.status:9} {name} after {took}{_why(answer, again)} ({self.headline})")

    def stopping(self) -> None:
        """As ``Board.stopping``."""
        self._say("stopping: every run saves a checkpoint first")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class LiveTable(Lines):
    """The runs in progress in a table that moves; what failed stands above it."""

    def __init__(self, runs: int, already: int, console: Console) -> None:
        super().__init__(runs, already, console)
        self._stopping = False

    def began(self, name: str) -> None:
        """As ``Board.began``."""
        Board.began(self, name)

    def ended(self, name: str, answer: Answer, *, again: bool) -> None:
        """As ``Board.ended``."""
        Board.ended(self, name, answer, again=again)
        if answer.status == "failed":
            self._say(f"{answer.status} {name}{_why(answer, again)}")

    def stopping(self) -> None:
        """As ``Board.stopping``."""
        self._stopping = True

    def __rich__(self) -> Group:
        """Drawn anew several times a second, by another thread."""
        table = Table(box=None, pad_edge=False)
        for title in ("run", "", "batches", "left"):
            table.add_column(title, justify="right" if title in ("batches", "left") else "left")
        going = list(self.going.items())
        for name, run in going[:MOST_LINES]:
            bar = ProgressBar(total=run.steps or None, completed=run.step, width=20)
            passed = time.monotonic() - run.began
            left = duration(passed * (1 - run.share) / run.made) if run.made else ""
            batches = f"{run.step:,} / {run.steps:,}" if run.steps else "starting"
            table.add_row(Text(name, overflow="ellipsis"), bar, batches, left)
        more = len(going) - MOST_LINES
        below = [f"and {more} more"] if more > 0 else []
        below += ["stopping: every run saves a checkpoint first"] if self._stopping else []
        return Group(table, *below, self.headline)


@contextlib.contextmanager
def shown_board(runs: int, already: int, *, shown: bool) -> Iterator[Board]:
    """The board that suits standard error."""
    console = Console(stderr=True)
    if not shown:
        yield Board(runs, already)
    elif not console.is_terminal:
        yield Lines(runs, already, console)
    else:
        table = LiveTable(runs, already, console)
        with Live(table, console=console, transient=True, refresh_per_second=4):
            yield table


def duration(seconds: float) -> str:
    """Roughly, for a reader.

    >>> [duration(seconds) for seconds in (4.2, 75, 5400, 200_000)]
    ['4 s', '1 min 15 s', '1 h 30 min', '2 d 7 h']
    """
    whole = round(seconds)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for (unit, size), (lesser, part) in itertools.pairwise(units):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {lesser}" if rest else "")
    return f"{whole} s"


def _why(answer: Answer, again: bool) -> str:
    why = f": {answer.error}" if answer.error else ""
    return f"{why}; it is tried again" if again else why
