"""One process writes to a run directory; a second one is refused, readers are not."""

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from killing import QUICK, Forks, run_in

from deepccg.core import InUse, StepInfo
from deepccg.experiment import load, resume, run
from deepccg.records import find_runs

DIGITS: dict[str, Any] = {"method": "sgd", "stream.examples_per_class": 20}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))


def test_a_second_process_is_refused(forks: Forks, tmp_path: Path) -> None:
    """This process holds a run in the middle while another one tries."""
    refused = []

    def try_another(step: int, _total: int, _info: StepInfo) -> None:
        if step == 7:
            (found,) = find_runs([tmp_path])
            commands = (["run", "--method", "sgd", *QUICK], ["resume", str(found.path)])
            refused.extend(forks(command, str(tmp_path), None) for command in commands)
            assert load(found.path, device="cpu").classes  # reading is free

    first = forks(["run", "--method", "sgd", *QUICK], str(tmp_path), None)
    assert first.status == 0
    directory = run_in(tmp_path)
    expected = (directory / "checkpoint.safetensors").read_bytes()
    shutil.rmtree(directory)
    run(directory=directory, progress=try_another, checkpoint_every=1, **DIGITS)
    for done in refused:
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith("Error: ")
        assert done.err.endswith("is in use by another process: let it end first\n")
        assert str(directory.relative_to(tmp_path)) in done.err
    assert len(refused) == 2
    assert (directory / "checkpoint.safetensors").read_bytes() == expected
    assert not (directory / ".lock").exists()


def test_two_threads_are_two(tmp_path: Path) -> None:
    refused: list[str] = []

    def second() -> None:
        try:
            run(directory=tmp_path / "run", **DIGITS)
        except InUse as error:
            refused.append(str(error))

    def progress(step: int, _total: int, _info: StepInfo) -> None:
        if step == 3:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    run(directory=tmp_path / "run", progress=progress, **DIGITS)
    assert refused == [f"{tmp_path / 'run'} is in use by another process: let it end first"]


def test_a_finished_run_is_read_back_while_locked(tmp_path: Path) -> None:
    finished = run(directory=tmp_path / "run", **DIGITS)
    with FileLock(tmp_path / "run" / ".lock"):
        assert resume(tmp_path / "run").evaluations == finished.evaluations
        assert run(directory=tmp_path / "run", **DIGITS).summary == finished.summary
        assert load(tmp_path / "run").classes == finished.learner.classes


def test_a_finished_run_is_read_back_where_nothing_can_be_written(tmp_path: Path) -> None:
    finished = run(directory=tmp_path / "run", **DIGITS)
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir()}
    (tmp_path / "run").chmod(0o500)
    try:
        assert resume(tmp_path / "run").evaluations == finished.evaluations
    finally:
        (tmp_path / "run").chmod(0o700)
    assert before == {file.name: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir()}


def test_a_refused_directory_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        run(directory=tmp_path, **DIGITS)
    assert [file.name for file in tmp_path.iterdir() if file.name != "cache"] == ["thesis.tex"]
