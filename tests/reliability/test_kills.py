"""A run killed at any instant ends as if nothing had happened: every file and every table."""

import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killing import QUICK, Figures, Forks, Moment, Whole, killed_and_continued, run_in

from deepccg.methods import METHODS

ONCE = settings(
    max_examples=2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
PARTS = st.floats(0, 1)


@pytest.mark.slow_for_most
@pytest.mark.parametrize("method", METHODS)
@ONCE
@given(data=st.data())
def test_a_killed_run_ends_as_if_nothing_had_happened(
    forks: Forks, whole: Callable[[str], Whole], method: str, data: st.DataObject
) -> None:
    expected = whole(method)
    saving = [number for number, letter in enumerate(expected.calls) if letter == "c"]
    assert len(saving) >= 4 * 20  # write, fsync, rename and fsync of the directory at each step
    # Shifted by the method, so that each dies elsewhere.
    inside = st.integers(0, 10**6).map(lambda n: saving[(n + crc32(method.encode())) % len(saving)])
    anywhere = st.one_of(
        st.builds(Moment, call=st.integers(0, len(expected.calls) - 1), part=PARTS),
        st.builds(Moment, seconds=st.floats(0, expected.seconds)),
    )
    first = data.draw(st.builds(Moment, call=inside, part=PARTS))
    moments = [first, *data.draw(st.lists(anywhere, max_size=1))]
    figures = Figures()
    with tempfile.TemporaryDirectory() as place:
        killed_and_continued(forks, method, Path(place), moments, expected, figures)
    assert figures.kills >= 1
    assert figures.mismatches == 0


@pytest.mark.slow  # eleven runs
@pytest.mark.parametrize("part", [0.0, 1.0])
def test_every_instant_of_a_checkpoint_is_survived(
    forks: Forks, whole: Callable[[str], Whole], tmp_path: Path, part: float
) -> None:
    """Write, fsync, two renames, fsync of the directory: the eighth checkpoint, kill by kill."""
    expected = whole("er")
    saving = [number for number, letter in enumerate(expected.calls) if letter == "c"]
    figures = Figures()
    for call in range(5):
        place = tmp_path / str(call)
        place.mkdir()
        moment = Moment(call=saving[4 + 5 * 6 + call], part=part)
        killed_and_continued(forks, "er", place, [moment], expected, figures)
    assert (figures.kills, figures.mismatches) == (5, 0)
    assert figures.in_a_checkpoint >= 3
    assert figures.from_previous >= 1  # between the two renames


@pytest.mark.slow  # nine runs
def test_many_kills_in_one_run(forks: Forks, whole: Callable[[str], Whole], tmp_path: Path) -> None:
    expected = whole("deepccg")
    moments = [Moment(call=call, part=0.7) for call in (3, 11, 0, 17, 29, 4, 38)]
    figures = Figures()
    killed_and_continued(forks, "deepccg", tmp_path, moments, expected, figures)
    assert (figures.kills, figures.mismatches) == (7, 0)


def test_a_kill_leaves_no_lock_and_no_litter(
    forks: Forks, whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    command = ["run", "--method", "sgd", *QUICK]
    moment = Moment(call=whole("sgd").calls.index("c", 40), part=0.5)
    assert forks(command, str(tmp_path), moment).status == -signal.SIGKILL
    directory = run_in(tmp_path)
    assert any(file.name.endswith(".tmp") for file in directory.iterdir())
    assert (directory / ".lock").exists()
    assert forks(command, str(tmp_path), None).status == 0
    assert sorted(file.name for file in directory.iterdir()) == [
        "audit.json",
        "checkpoint.safetensors",
        "config.toml",
        "environment.json",
        "previous.safetensors",
        "records.jsonl",
        "timing.json",
    ]
