"""``deepccg archive``."""

from pathlib import Path

import pytest

from deepccg.experiment import run
from deepccg.records import find_runs

TINY = {"dataset": "digits", "stream.examples_per_class": 10, "method": "sgd"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs and one that was begun."""
    place = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPCCG_CACHE", str(place / "cache"))
        for seed in (0, 1):
            run(directory=place / "sgd" / f"seed-{seed}", seed=seed, **TINY)
    begun = place / "sgd" / "seed-2"
    begun.mkdir()
    (begun / "config.toml").write_bytes((place / "sgd" / "seed-1" / "config.toml").read_bytes())
    return place


def test_runs_go_into_an_archive_and_back(deepccg, place: Path, runs: Path) -> None:
    done = deepccg("archive", runs / "sgd" / "seed-0", "--to", "runs.jsonl")
    assert (done.code, done.out, done.err) == (0, "Added 1 run: runs.jsonl\n", "")
    done = deepccg("archive", runs, "--to", "runs.jsonl")
    assert (done.code, done.out) == (0, "Added 1 run, 1 there already: runs.jsonl\n")
    assert done.err.count("\n") == 1
    assert "seed-2: not finished" in done.err
    done = deepccg("archive", "runs.jsonl", "--to", "back")
    assert (done.code, done.out) == (0, "Written 2 runs: back\n")
    for seed in ("seed-0", "seed-1"):
        for name in ("config.toml", "records.jsonl", "environment.json", "audit.json"):
            copy = place / "back" / "sgd" / seed / name
            assert copy.read_bytes() == (runs / "sgd" / seed / name).read_bytes()
    done = deepccg("archive", "runs.jsonl", "--to", "runs.parquet")
    assert done.out == "Added 2 runs: runs.parquet\n"
    lines = [[run.records() for run in find_runs([name])] for name in ("back", "runs.parquet")]
    assert lines[0] == lines[1]


def test_an_archive_is_reported_and_reused_like_directories(
    deepccg, place: Path, runs: Path
) -> None:
    deepccg("archive", runs, "--to", "runs.jsonl.gz")
    assert "Report of 2 runs" in deepccg("report", "runs.jsonl.gz").out
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "SGD" in page
    words = ("reproduce", "ablation", "--quick", "--methods", "sgd", "--seeds", "0", "--dry-run")
    done = deepccg(*words, "--reuse", "runs.jsonl.gz", "--reuse", runs)
    assert done.code == 0, done.err
    assert "--quick" in done.err
    assert f"--reuse runs.jsonl.gz --reuse {runs}" in done.err  # in the command for what is missing


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere", "--to", "a.jsonl"), "nowhere is not a directory of runs, nor an archive"),
        (("nowhere.jsonl", "--to", "a.jsonl"), "cannot read nowhere.jsonl: No such file"),
        ((".", "--to", "a.jsonl"), "there is no finished run in ."),
        ((".", "--to", "a.json"), "--to a.json: end it in .jsonl, .jsonl.gz or .parquet"),
        ((".",), "Missing option '--to'"),
    ],
)
def test_bad_input_is_one_line(deepccg, place: Path, words, message: str) -> None:
    done = deepccg("archive", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err
    assert not list(place.iterdir())


def test_a_missing_archive_to_reuse_is_one_line(deepccg) -> None:
    done = deepccg("reproduce", "table1", "--quick", "--dry-run", "--reuse", "nowhere.jsonl")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "cannot read nowhere.jsonl" in done.err
