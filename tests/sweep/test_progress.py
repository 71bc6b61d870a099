"""Progress of a sweep, as it is shown."""

import io

import pytest
from rich.console import Console

from deepccg.sweep.job import JobResult
from deepccg.sweep.progress import SweepProgress

KILLED = JobResult("failed", "its process was killed by SIGKILL", retryable=True)
NAME = "cifar10-disjoint-task-er-default-1a2b3c4d/seed-{}"


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def log(clock: Clock) -> Console:
    return Console(file=io.StringIO(), width=40, get_time=clock)


def terminal(clock: Clock) -> Console:
    output = io.StringIO()
    return Console(
        file=output, width=70, height=12, force_terminal=True, color_system=None, get_time=clock
    )


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def seconds_left(progress: SweepProgress) -> float | None:
    return progress.bars.tasks[0].time_remaining


def test_the_time_left_follows_the_pace_of_this_sweep(clock: Clock) -> None:
    progress = SweepProgress(runs=4, already=1, console=log(clock))
    progress.started("a")
    progress.started("b")
    assert seconds_left(progress) is None
    clock.now += 10
    progress.progressed("a", 1, 100)
    progress.progressed("b", 51, 100)  # continued from the checkpoint of step 50
    clock.now += 98
    progress.progressed("a", 50, 100)
    progress.progressed("b", 100, 100)
    # In 98 s there were 98 steps; left are 50 of a and two whole runs.
    assert seconds_left(progress) == pytest.approx(250, abs=5)
    progress.finished("b", JobResult("finished"), retry=False)
    assert seconds_left(progress) == pytest.approx(250, abs=5)
    assert progress.summary.startswith("1 of 4 runs done, 1 finished before, 0:04:")
    progress.finished("a", KILLED, retry=True)  # its last checkpoint was of step 40
    progress.started("a")
    progress.progressed("a", 41, 100)
    clock.now += 98
    progress.progressed("a", 90, 100)
    # About 148 steps in 196 s; left are 10 steps of a and two whole runs.
    assert seconds_left(progress) == pytest.approx(210 * 196 / 148, abs=5)
    progress.finished("a", KILLED, retry=False)
    # Left are two runs.
    assert seconds_left(progress) == pytest.approx(200 * 196 / 148, abs=5)
    assert progress.summary.startswith("1 of 4 runs done, 1 failed, 1 finished before, 0:04:")


def test_log_lines(clock: Clock) -> None:
    console = log(clock)
    progress = SweepProgress(runs=2, already=3, console=console)
    with progress.bars:
        progress.started("digits/seed-0")
        clock.now += 75
        progress.finished("digits/seed-0", KILLED, retry=True)
        progress.started("digits/seed-0")
        progress.progressed("digits/seed-0", 1, 2)
        progress.finished("digits/seed-0", JobResult("finished"), retry=False)
        progress.stopping()
    assert text(console).splitlines() == [
        "finished before: 3; to do: 2",
        "started   digits/seed-0",
        "failed    digits/seed-0 after 0:01:15: its process was killed by SIGKILL; retrying "
        "(0 of 2 runs done, 3 finished before)",
        "started   digits/seed-0",
        "finished  digits/seed-0 after 0:00:00 (1 of 2 runs done, 3 finished before)",
        "stopping: every run saves a checkpoint first",
    ]


def test_a_long_run_is_not_silent_in_a_log(clock: Clock) -> None:
    console = log(clock)
    progress = SweepProgress(runs=2, already=0, console=console, unit="shard")
    with progress.bars:
        progress.started("a")
        for step in range(1, 26):
            clock.now += 1
            progress.progressed("a", step, 100)
    assert text(console).splitlines() == [
        "started   a",
        "running   a: 10 of 100 batches (0 of 2 shards done, 0:03:10 left)",
        "running   a: 20 of 100 batches (0 of 2 shards done, 0:03:00 left)",
    ]


def test_bars_on_a_terminal(clock: Clock) -> None:
    console = terminal(clock)
    progress = SweepProgress(runs=30, already=0, console=console)
    for seed in range(20):
        progress.started(NAME.format(seed))
    progress.progressed(NAME.format(1), 241, 1000)
    clock.now += 10
    progress.progressed(NAME.format(1), 250, 1000)
    progress.finished(NAME.format(0), JobResult("failed", "out of luck"), retry=False)
    progress.stopping()
    assert text(console).splitlines() == [
        f"failed {NAME.format(0)}: out of luck",
        "stopping: every run saves a checkpoint first",
    ]
    console.print(progress.bars)
    total, first, *others = text(console).splitlines()[2:]
    assert total.startswith("0 of 30 runs done, 1 failed ")
    assert "19 running" in total
    assert first.startswith("cifar10-disjoint-task-er-de")
    assert first.split()[-4:] == ["250", "/", "1,000", "0:12:30"]  # 750 steps, one a second
    assert len(others) == 18
    assert all("starting" in line for line in others)
    assert max(map(len, (total, first, *others))) <= 70


def test_a_quiet_console_shows_nothing(clock: Clock) -> None:
    console = terminal(clock)
    console.quiet = True
    progress = SweepProgress(runs=1, already=1, console=console)
    with progress.bars:
        progress.started("a")
        progress.finished("a", KILLED, retry=False)
    assert text(console) == ""
