"""``deepccg resume``: the same files and the same table as if the run had never stopped."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from killing import QUICK, Forks, Moment, Whole, fingerprint, run_in
from PIL import Image

from deepccg.core import InputError
from deepccg.experiment import resume, run


def test_a_run_directory_or_one_above_it(
    forks: Forks, whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    expected = whole("er")
    moment = Moment(call=60)
    assert forks(["run", "--method", "er", *QUICK], str(tmp_path), moment).status == -9
    done = forks(["resume", "out"], str(tmp_path), None)
    assert (done.status, done.out, done.err) == (0, expected.out, "")
    assert fingerprint(run_in(tmp_path)) == expected.files
    again = forks(["resume", str(run_in(tmp_path))], str(tmp_path), None)  # and read back
    assert (again.status, again.err) == (0, "")
    assert again.out.splitlines()[:-1] == expected.out.splitlines()[:-1]  # but for the path


def test_every_unfinished_run_below_is_continued(
    forks: Forks, whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    command = ["run", "--method", "er,sgd", "--seeds", "0-1", *QUICK]
    calls = whole("er").calls
    third = 2 * len(calls) + calls.index(".c", 100) + 1  # of four, as it writes a checkpoint
    assert forks(command, str(tmp_path), Moment(call=third)).status == -9
    begun = len(list(tmp_path.rglob("config.toml")))
    finished = len(list(tmp_path.rglob("audit.json")))
    assert (finished, begun) == (2, 3)
    done = forks(["resume", "out", "--json"], str(tmp_path), None)
    assert (done.status, done.err) == (0, "")
    shown = json.loads(done.out)
    assert [list(row["seeds"]) for row in shown["results"]] == [["0", "1"], ["0"]]
    assert len(list(tmp_path.rglob("audit.json"))) == begun
    done = forks(["run", "--method", "sgd,er", *QUICK], str(tmp_path), None)
    assert done.status == 0


def test_the_previous_checkpoint_is_taken_with_one_line_on_stderr(
    forks: Forks, whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    forks(["run", "--method", "er", *QUICK], str(tmp_path), Moment(call=60))
    (run_in(tmp_path) / "checkpoint.safetensors").write_bytes(b"damaged")
    done = forks(["resume", "out"], str(tmp_path), None)
    assert (done.status, done.out) == (0, whole("er").out)
    assert done.err.count("\n") == 1
    assert done.err.startswith("Warning: ")
    assert "is damaged or not a checkpoint" in done.err


@pytest.mark.parametrize("exists", [True, False])
def test_a_directory_without_a_run_is_one_line(forks: Forks, tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / "empty").mkdir()
    done = forks(["resume", "empty"], str(tmp_path), None)
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "Error: empty holds no run: no config.toml there or below\n"
        if exists
        else "Error: empty is not a directory: give a run or a directory of runs\n"
    )


def test_a_wrong_checkpoint_every_is_one_line(forks: Forks, tmp_path: Path) -> None:
    done = forks(["run", *QUICK, "--checkpoint-every", "often"], str(tmp_path), None)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("Error: checkpoint_every takes a number of steps")
    assert not (tmp_path / "out").exists()


def write_folder(root: Path, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def test_a_folder_is_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: Forks
) -> None:
    """Its place is not recorded; the line that says how to continue has it."""
    folder = write_folder(tmp_path / "my data" / "pets")
    command = ["run", "--dataset", str(folder), "--set", "network.kind=mlp", "--method", "sgd",
               "--set", "evaluation.every=1", "--out"]  # fmt: skip
    assert forks([*command, "first"], str(tmp_path), None).status == 0  # decodes the images
    done = forks([*command, "out"], str(tmp_path), Moment(call=9, act="INT"))
    assert done.status == 130
    assert f" --data-dir '{folder}' " in done.err
    directory = run_in(tmp_path)
    done = forks(["resume", "out"], str(tmp_path), None)
    assert done.status == 2
    assert "learned 'pets': say where that lies (--data-dir)" in done.err
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    result = resume(directory, data_dir=folder)
    other = run(
        directory=tmp_path / "other", dataset=str(folder), method="sgd",
        **{"network.kind": "mlp", "evaluation.every": 1},
    )  # fmt: skip
    assert result.summary == other.summary
    with pytest.raises(InputError, match="the data changed since"):
        resume(directory, data_dir=write_folder(tmp_path / "else" / "pets", seed=1))


OWN = """
from deepccg.methods import SGD

class Mine(SGD):
    pass

class Other(SGD):
    pass
"""


def directory_of(place: Path, method: str) -> Path:
    (found,) = (place / "out").glob(f"*-{method}-default-*/seed-0")
    return found


def test_user_defined_classes_are_continued_if_named_and_the_others_anyway(
    forks: Forks, whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    (tmp_path / "mymod.py").write_text(OWN)
    for method in ("mymod:Mine", "er"):
        killed = forks(["run", "--method", method, *QUICK], str(tmp_path), Moment(call=60))
        assert killed.status == -9
    mine = directory_of(tmp_path, "mymod-Mine")
    before = fingerprint(mine)
    done = forks(["resume", "out"], str(tmp_path), None)
    assert (done.status, done.out) == (2, whole("er").out)
    assert fingerprint(directory_of(tmp_path, "er")) == whole("er").files
    assert fingerprint(mine) == before
    assert done.err == (
        f"Error: not continued: {mine.relative_to(tmp_path)}, run with mymod:Mine: "
        f"if you trust that code, add --method mymod:Mine\n"
    )
    other = forks(["resume", "out", "--method", "mymod:Other"], str(tmp_path), None)
    assert (other.status, other.err) == (2, done.err)
    done = forks(["resume", "out", "--method", "mymod:Other,mymod:Mine"], str(tmp_path), None)
    assert (done.status, done.err) == (0, "")
    assert "mymod:Mine" in done.out


def test_finished_runs_are_shown_without_their_class(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "mymod.py").write_text(OWN)
    command = ["run", "--method", "mymod:Mine,er", "--seeds", "0-1", *QUICK]
    ran = forks(command, str(tmp_path), None)
    assert ran.status == 0, ran.err
    (tmp_path / "mymod.py").write_text("raise SystemExit(70)")  # if it were imported
    done = forks(["resume", "out"], str(tmp_path), None)
    assert (done.status, done.err) == (0, "")
    assert all(f" {name} " in done.out for name in ("er", "mymod:Mine"))
    printed = forks(["resume", "out", "--json"], str(tmp_path), None).out
    first, end = json.JSONDecoder().raw_decode(printed)
    shown = json.loads(printed[end:])["results"][0]
    assert first["results"][0]["label"] == "er"
    assert (shown["label"], list(shown["seeds"])) == ("mymod:Mine", ["0", "1"])
    assert shown["config"]["method"]["name"] == "mymod:Mine"
    assert shown["audits"]["1"]["test"]["opened"] is True
    assert [Path(each).name for each in shown["directories"].values()] == ["seed-0", "seed-1"]
