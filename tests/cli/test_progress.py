"""How far a run is: a bar on a terminal, lines elsewhere; both know the number of steps at once.

Lines of a real process, in a file: ``tests/report/test_live_page.py``.
"""

import io
from pathlib import Path

import pytest
from rich.console import Console

from deepccg.cli.progress import RunProgress
from deepccg.core import StepInfo
from deepccg.experiment import Interrupted, request_stop, resume, run

SMALL = {"stream.examples_per_class": 20, "method": "sgd"}  # 20 steps


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def shown(clock: Clock, *, terminal: bool) -> tuple[RunProgress, Console]:
    console = Console(
        file=io.StringIO(), width=100, force_terminal=terminal, color_system=None, get_time=clock
    )
    return RunProgress("er, seed 0", console), console


def bar(progress: RunProgress, console: Console) -> str:
    with console.capture() as captured:
        console.print(progress.bars)
    return captured.get()


def test_the_bar_begins_with_what_is_known():
    progress, console = shown(Clock(), terminal=True)
    progress.begin(120, 500)
    drawn = bar(progress, console)
    assert "120/500 batches" in drawn
    assert "loss" not in drawn
    progress(121, 500, StepInfo(loss=2.0))
    assert "121/500 batches, loss 2.000" in bar(progress, console)  # not smoothed from zero
    progress(122, 500, StepInfo(loss=1.0))
    assert "122/500 batches, loss 1.950" in bar(progress, console)


def test_a_line_every_ten_seconds_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("deepccg.sweep.progress.LINE_SECONDS", 10.0)
    clock = Clock()
    progress, console = shown(clock, terminal=False)
    progress.begin(100, 500)
    for step in range(101, 126):
        clock.now += 1
        progress(step, 500, StepInfo(loss=1.5))
    assert console.file.getvalue().splitlines() == [
        "er, seed 0: 110 of 500 batches, loss 1.500, 0:06:30 left",
        "er, seed 0: 120 of 500 batches, loss 1.500, 0:06:20 left",
    ]


def test_a_run_tells_where_it_begins(tmp_path: Path):
    class Told:
        """Stops at step 7, the first time."""

        def __init__(self) -> None:
            self.calls: list[tuple[str, int, int]] = []

        def begin(self, step: int, steps: int) -> None:
            self.calls.append(("begin", step, steps))

        def __call__(self, step: int, steps: int, _info: StepInfo) -> None:
            self.calls.append(("step", step, steps))
            if step == 7:
                request_stop()

    first, second, third = Told(), Told(), Told()
    with pytest.raises(Interrupted):
        run(directory=tmp_path / "run", progress=first, **SMALL)
    assert first.calls[:2] == [("begin", 0, 20), ("step", 1, 20)]
    resume(tmp_path / "run", progress=second)
    assert second.calls[:2] == [("begin", 7, 20), ("step", 8, 20)]
    resume(tmp_path / "run", progress=third)
    assert third.calls == [("begin", 20, 20)]  # it is finished
