"""Progress of a sweep on standard error: bars on a terminal, log lines elsewhere."""

from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.table import Column

from deepccg.sweep.job import JobResult

SPEED_SECONDS = 600.0  # the time left is estimated from at most this long
LINE_SECONDS = 10.0  # without a line, after which one says how far it is


class LogLines:
    """Lines on a console that is no terminal; what is short prints none of those ``due``."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = console.get_time()

    def due(self) -> bool:
        """Whether the last line is long enough ago for one that says how far it is."""
        return self._console.get_time() - self._last >= LINE_SECONDS

    def print(self, text: str) -> None:
        """Print a line, however long it is."""
        self._last = self._console.get_time()
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class SweepProgress:
    """Counts runs and shows how far they are, from the time its ``bars`` are entered.

    A terminal gets a bar for the sweep and one for each run in progress, with failures printed
    above them; anything else a line for each run that starts or ends, and one whenever there was
    none for some seconds. The bar of the sweep counts in runs, and only what is done here: steps
    before the checkpoint of a continued run say nothing about the pace. A quiet console shows
    nothing. ``unit`` is what one of them is called.
    """

    def __init__(self, runs: int, already: int, console: Console, unit: str = "run") -> None:
        self._runs, self._already, self._unit = runs, already, unit
        self._done = self._failed = 0
        self._log_lines = not console.is_terminal
        self._lines = LogLines(console)
        self.bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column()),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[detail]}", justify="right"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            refresh_per_second=4,
            speed_estimate_period=SPEED_SECONDS,
            disable=self._log_lines or console.quiet,
        )
        self._sweep = self._add_bar("", "", runs)
        self._running: dict[str, Task] = {}
        self._count()
        if already:
            self._print(f"finished before: {already}; to do: {runs}")

    def started(self, name: str) -> None:
        """A worker took a run."""
        self._running[name] = self._add_bar(name, "starting")
        self._count()
        if self._log_lines:
            self._print(f"started   {name}")

    def progressed(self, name: str, step: int, steps: int) -> None:
        """A run did a step."""
        run = self._running[name]
        if run.total is None:  # its first step here
            self.bars.update(run.id, completed=step - 1, total=steps)
            self._advance(total=-(step - 1) / steps)
        self._advance((step - run.completed) / steps)
        self.bars.update(run.id, completed=step, detail=f"{step:,} / {steps:,}")
        if self._log_lines and self._lines.due():
            self._print(f"running   {name}: {step:,} of {steps:,} batches ({self.summary})")

    def finished(self, name: str, result: JobResult, *, retry: bool) -> None:
        """An attempt ended; ``retry`` if there will be another."""
        run = self._running.pop(name)
        share = run.completed / run.total if run.total else 0.0
        if result.status in ("finished", "already"):
            self._done += 1
            self._advance(1 - share)
        elif retry:
            self._advance(total=share)
        else:
            self._failed += result.status == "failed"
            self._advance(total=share - 1)
        self.bars.remove_task(run.id)
        self._count()
        error = f": {result.error}" if result.error else ""
        error += "; retrying" if retry else ""
        if self._log_lines:
            took = timedelta(seconds=round(run.elapsed or 0))
            self._print(f"{result.status:9} {name} after {took}{error} ({self.summary})")
        elif result.status == "failed":
            self._print(f"failed {name}{error}")

    def stopping(self) -> None:
        """The sweep was asked to stop."""
        self._print(f"stopping: every {self._unit} saves a checkpoint first")

    @property
    def summary(self) -> str:
        """The counts and the time left, in one line."""
        left = self._sweep.time_remaining
        return self._sweep.description + (f", {timedelta(seconds=left)} left" if left else "")

    def _add_bar(self, description: str, detail: str, total: float | None = None) -> Task:
        self.bars.add_task(description, total=total, detail=detail)
        return self.bars.tasks[-1]

    def _advance(self, done: float = 0.0, *, total: float = 0.0) -> None:
        """Add to the sweep's work done, and to all there is to do."""
        self._sweep.total = (self._sweep.total or 0.0) + total  # update() would forget the pace
        self.bars.update(self._sweep.id, advance=done)

    def _count(self) -> None:
        counts = [f"{self._done} of {self._runs} {self._unit}s done"]
        counts += [f"{self._failed} failed"] if self._failed else []
        counts += [f"{self._already} finished before"] if self._already else []
        description, running = ", ".join(counts), f"{len(self._running)} running"
        self.bars.update(self._sweep.id, description=description, detail=running, refresh=True)

    def _print(self, text: str) -> None:
        self._lines.print(text)
