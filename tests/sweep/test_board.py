"""What a sweep shows of itself."""

import io
import time

import pytest
from rich.console import Console

from deepccg.sweep.job import Answer
from deepccg.sweep.progress import Board, Lines, LiveTable, duration

KILLED = Answer("failed", "its process was killed by SIGKILL", again=True)


def test_the_time_left_follows_the_pace_here(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    board = Board(runs=4, already=1)
    assert board.seconds_left is None
    board.began("a")
    board.began("b")
    assert board.seconds_left is None
    now += 10
    board.moved("a", 1, 100)
    board.moved("b", 51, 100)  # continued from the checkpoint of step 50
    now += 90
    board.moved("a", 50, 100)
    board.moved("b", 100, 100)
    # Half a run was done of each; left are half of a and two more: 100 s a run.
    assert board.seconds_left == pytest.approx(250)
    board.ended("b", Answer("finished"), again=False)
    assert board.seconds_left == pytest.approx(250)
    assert board.headline == "1 of 4 runs done, 1 finished before, about 4 min 10 s left"
    board.ended("a", KILLED, again=True)  # its checkpoint was of step 40
    board.began("a")
    board.moved("a", 41, 100)
    board.moved("a", 90, 100)
    assert board.seconds_left == pytest.approx(100 * 2.1 / 1.5)
    board.ended("a", KILLED, again=False)
    assert board.headline.startswith("1 of 4 runs done, 1 failed, 1 finished before, about ")


def test_lines_for_a_log() -> None:
    told = io.StringIO()
    board = Lines(runs=2, already=3, console=Console(file=told, width=40))
    board.began("digits/seed-0")
    board.ended("digits/seed-0", KILLED, again=True)
    board.began("digits/seed-0")
    board.moved("digits/seed-0", 1, 2)
    board.ended("digits/seed-0", Answer("finished"), again=False)
    lines = told.getvalue().splitlines()
    assert lines[:3] == [
        "finished before: 3; to do: 2",
        "begins    digits/seed-0",
        "failed    digits/seed-0 after 0 s: its process was killed by SIGKILL; it is tried again "
        "(0 of 2 runs done, 3 finished before)",
    ]
    assert lines[4].startswith("finished  digits/seed-0 after 0 s (1 of 2 runs done, 3 finished")


def test_a_table_for_a_terminal() -> None:
    told = io.StringIO()
    console = Console(file=told, width=70, force_terminal=True, color_system=None)
    board = LiveTable(runs=30, already=0, console=console)
    for number in range(20):
        board.began(f"cifar10-disjoint-task-er-default-1a2b3c4d/seed-{number}")
    board.moved("cifar10-disjoint-task-er-default-1a2b3c4d/seed-1", 250, 1000)
    board.ended(
        "cifar10-disjoint-task-er-default-1a2b3c4d/seed-0", Answer("failed", "why"), again=False
    )
    board.stopping()
    assert told.getvalue() == "failed cifar10-disjoint-task-er-default-1a2b3c4d/seed-0: why\n"
    console.print(board)
    shown = told.getvalue().splitlines()[1:]
    assert shown[0].split() == ["run", "batches", "left"]
    assert "250 / 1,000" in shown[1]
    assert max(map(len, shown)) <= 70
    assert [line.strip() for line in shown[-3:]] == [
        "and 3 more",
        "stopping: every run saves a checkpoint first",
        "0 of 30 runs done, 1 failed",  # and nothing about the time after a single step
    ]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "59 min 59 s"), (86_400, "1 d")],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
