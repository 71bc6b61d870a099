"""What an honest run's audit says, and that it is right."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from killing import SHORTER
from PIL import Image

from deepccg.cli import main
from deepccg.core import StepInfo
from deepccg.experiment import RunResult, build_run_data, protocol_line, resolve, run
from deepccg.experiment.session import load_checkpoint
from deepccg.learners.state_file import save_state
from deepccg.methods import METHODS
from deepccg.records import RunDirectory
from deepccg.streams import Dataset, from_arrays, load_dataset

QUICK = {"dataset": "digits", "stream.examples_per_class": 20, "memory": 30}
WITHOUT_MEMORY = ("sgd", "multi-task", "ewc", "packnet", "ccg", "ncm", "slda", "randumb")


class Interrupted(Exception):
    """Stands for whatever ends a process."""


def written(result: RunResult) -> dict:
    return json.loads((result.directory / "audit.json").read_text(encoding="utf-8"))


@pytest.mark.slow_for_most
@pytest.mark.parametrize(
    ("method", "stream"),
    [
        *((method, "disjoint") for method in METHODS),
        *((method, "shifting-window") for method in ("ccg", "deepccg", "er", "icarl", "ewc")),
    ],
)
def test_every_method_keeps_to_the_protocol(tmp_path: Path, method: str, stream: str) -> None:
    settings = {"method": method, "stream": stream, **QUICK, **SHORTER.get(method, {})}
    result = run(directory=tmp_path / "run", **settings)
    audit = written(result)
    assert audit == result.audit
    assert (audit["version"], audit["passed"], audit["violations"]) == (1, True, [])
    offline = method == "multi-task"
    assert audit["protocol"] == ("offline" if offline else "single pass")
    examples, passes = (200 if stream == "disjoint" else 180), (2 if offline else 1)
    assert audit["reads"] == {
        "passes": passes, "examples": examples, "total": passes * examples, "most": passes
    }  # fmt: skip
    stored = 0 if method in WITHOUT_MEMORY else 30
    assert (audit["memory"]["examples"], audit["memory"]["budget"]) == (stored, 30)
    assert audit["memory"]["bytes"] == result.learner.memory_usage().bytes
    assert audit["memory"]["unnamed_bytes"] < 2_000
    assert audit["test"]["opened"]
    assert audit["test"]["class_incremental"] == (method != "packnet")  # which needs the task
    assert audit["test"]["evaluations"] == len(result.evaluations)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "entropy-ss", "method.space": "embeddings", "memory": 120},
        {"method": "infogs", "network.kind": "identity"},  # embeddings are copies of examples
        {"method": "icarl", "method.quota": "growing"},
        {"method": "esmer", "memory": 0},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_unusual_settings_keep_to_it_too(tmp_path: Path, settings: dict) -> None:
    result = run(directory=tmp_path / "run", **{**QUICK, **settings})
    assert result.audit is not None
    assert result.audit["passed"]


def passes_of(tmp_path: Path, method: str) -> tuple[dict, int, RunResult]:
    """Network passes while learning, how many examples were replayed, and the run."""
    replayed: list[int] = []

    def progress(_step: int, _steps: int, info: StepInfo) -> None:
        replayed.append(info.replayed)

    result = run(directory=tmp_path / "run", method=method, progress=progress, **QUICK)
    assert result.audit is not None
    return result.audit["passes"], sum(replayed), result


@pytest.mark.parametrize(
    ("method", "forward", "backward"),
    [
        ("sgd", lambda _: 200, lambda _: 200),
        ("ewc", lambda _: 200, lambda _: 200),  # each example by itself, vectorised
        ("er", lambda replayed: 200 + replayed, lambda replayed: 200 + replayed),
        # The stable network, a copy, is asked about all that is learned from.
        ("esmer", lambda replayed: 2 * (200 + replayed), lambda replayed: 200 + replayed),
        # Gradients of the batch and of up to ten stored ones, to compare them.
        ("gss", lambda replayed: 2 * (200 + replayed), lambda replayed: 2 * (200 + replayed)),
    ],
)
def test_images_through_the_network_are_counted(
    tmp_path: Path, method: str, forward: Callable[[int], int], backward: Callable[[int], int]
) -> None:
    passes, replayed, result = passes_of(tmp_path, method)
    assert passes["learning"]["forward_images"] == forward(replayed)
    assert passes["learning"]["backward_images"] == backward(replayed)
    scored = sum(evaluation.images for evaluation in result.evaluations)
    assert passes["evaluation"]["forward_images"] == scored  # without what the auditor asks
    assert passes["evaluation"]["backward_images"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["deepccg", "icarl", "esmer", "multi-task"])
@pytest.mark.parametrize("step", [3, 18])
def test_an_interruption_leaves_no_trace(tmp_path: Path, method: str, step: int) -> None:
    def stop(now: int, _steps: int, _info: StepInfo) -> None:
        if now == step:
            raise Interrupted

    settings = {"method": method, "checkpoint_every": 1, **QUICK}
    with pytest.raises(Interrupted):
        run(directory=tmp_path / "twice", progress=stop, **settings)
    twice = run(directory=tmp_path / "twice", **settings)
    once = run(directory=tmp_path / "once", **settings)
    assert twice.audit == once.audit
    assert (twice.directory / "audit.json").read_bytes() == (
        once.directory / "audit.json"
    ).read_bytes()
    assert run(directory=tmp_path / "twice", **settings).audit == once.audit  # read back


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"method": "er"}, 20),
        ({"method": "er", "method.repeats": 3}, 60),
        ({"method": "agem"}, 20),  # two backwards for one step
        ({"method": "deepccg"}, 19),  # nothing to condition on at first
        ({"method": "derpp", "method.optimiser": "adamw", "method.lr": 0.01}, 20),
        ({"method": "ncm"}, 0),
    ],
    ids=str,
)
def test_moves_of_the_weights_are_counted(tmp_path: Path, settings: dict, steps: int) -> None:
    asked = {} if settings["method"] == "ncm" else {"method.average": 0.5}  # which moves nothing
    result = run(directory=tmp_path / "run", **QUICK, **asked, **settings)
    assert written(result)["training"] == {"batches": 20, "optimiser_steps": steps}


def test_a_run_begun_before_moves_were_counted_says_so(tmp_path: Path) -> None:
    settings = {"method": "er", "checkpoint_every": 1, **QUICK}

    def stop(now: int, _steps: int, _info: StepInfo) -> None:
        if now == 9:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(directory=tmp_path / "run", progress=stop, **settings)
    target = RunDirectory(tmp_path / "run")
    state, about = load_checkpoint(target.checkpoint_path)
    del about["audit"]["moves"]
    save_state(target.checkpoint_path, state, about)
    result = run(directory=tmp_path / "run", **settings)
    assert result.audit is not None
    assert result.audit["training"] == {"batches": 20, "optimiser_steps": None}
    assert "optimiser" not in protocol_line(result.audit)


def test_a_run_of_an_earlier_version_is_not_audited(tmp_path: Path) -> None:
    run(directory=tmp_path / "run", method="sgd", **QUICK)
    target = RunDirectory(tmp_path / "run")
    state, about = load_checkpoint(target.checkpoint_path)
    del about["audit"]
    save_state(target.checkpoint_path, state, about)
    target.audit_path.unlink()
    result = run(directory=tmp_path / "run", method="sgd", **QUICK)
    assert result.audit is None
    assert protocol_line(result.audit).startswith("protocol: not audited")
    assert not target.audit_path.exists()


def folder_of_digits(tmp_path: Path) -> Dataset:
    data = load_dataset("digits").train
    for label in range(4):
        (tmp_path / "images" / str(label)).mkdir(parents=True)
        for i, pixels in enumerate(data.x[data.y == label][:10, 0]):
            Image.fromarray(pixels).save(tmp_path / "images" / str(label) / f"{i}.png")
    return load_dataset(str(tmp_path / "images"), cache_dir=tmp_path / "cache")


def vectors(_: Path) -> Dataset:
    x = np.random.default_rng(0).normal(size=(40, 5))
    y = np.arange(40) % 4
    return from_arrays(x, y, x[:8] + 1, y[:8])


KINDS: dict[str, Callable[[Path], Dataset]] = {
    "digits": lambda _: load_dataset("digits"),
    "folder": folder_of_digits,
    "arrays": vectors,
}


@pytest.mark.parametrize("kind", KINDS)
def test_whether_the_test_part_was_opened_is_reported(tmp_path: Path, kind: str) -> None:
    settings = {"method": "er", "memory": 8, "stream.examples_per_class": 10}
    for validation in (None, 0.2):
        data = KINDS[kind](tmp_path / str(validation))
        config = resolve({**settings, "evaluation.validation": validation})
        assert build_run_data(config, data).test_openings == (0 if validation else 1)
        chosen = {"evaluation.validation": validation} if validation else {}
        result = run(directory=tmp_path / f"run-{validation}", data=data, **settings, **chosen)
        assert result.audit is not None
        assert result.audit["test"]["opened"] == (validation is None)
        assert ("test part not opened" in protocol_line(result.audit)) == (validation is not None)
        assert result.audit["memory"]["examples"] == 8


def deepccg(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["deepccg", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_the_command_line_shows_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--set", "stream.examples_per_class=20", "--memory", "30", "--out", str(tmp_path))
    assert deepccg(monkeypatch, "run", "--method", "er", *options) == 0
    # 30 images of 8 x 8 bytes, each with a class and a task of 8 bytes.
    assert (
        "\nprotocol: single pass, 200 examples read once; memory 30 of 30 examples, 2,400 bytes "
        "+ 0 other; 1 optimiser step per batch, about 6.33 passes over memory; "
        "no test data in training\n"
    ) in capsys.readouterr().out
    assert deepccg(monkeypatch, "run", "--method", "er", "--json", *options) == 0
    (entry,) = json.loads(capsys.readouterr().out)["results"]
    (directory,) = entry["directories"].values()
    assert entry["audits"] == {"0": json.loads((Path(directory) / "audit.json").read_text())}


def test_a_violation_is_one_line_and_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "greedy.py").write_text(
        "from deepccg.methods import SGD\n"
        "class Greedy(SGD):\n"
        "    def learn(self, batch):\n"
        "        self.__dict__.setdefault('kept', []).append(batch.x)\n"
        "        return super().learn(batch)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("DEEPCCG_DEBUG", raising=False)
    options = ("--set", "stream.examples_per_class=20", "--memory", "30", "--out", str(tmp_path))
    assert deepccg(monkeypatch, "run", "--method", "greedy:Greedy", *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    expected = "protocol violation (memory): 40 examples are held, 30 are allowed"
    assert err == f"Error: {expected} (40 in learner.kept)\n"
