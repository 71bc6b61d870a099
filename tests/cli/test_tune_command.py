"""``deepccg tune``."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

SGD = ("--method", "sgd", "--space", "lr=0.1")


@pytest.mark.slow  # starts a process
def test_a_preset_is_found_without_a_readable_test_part(
    deepccg, place: Path, tmp_path: Path, write_digits: Callable[..., Path]
) -> None:
    folder = tmp_path / "mydigits"
    write_digits(folder / "train", classes=4, count=20)
    write_digits(folder / "test", classes=4, count=2)
    for file in (folder / "test").rglob("*.png"):
        file.write_bytes(b"poison")
    words = ("tune", "--method", "sgd", "--space", "lr=1e-6,0.1", "--seeds", "0", "-j", "1")
    done = deepccg(*words, "--dataset", folder, "--validation", "0.2", "--out", tmp_path / "runs")
    assert done.code == 0, done.err
    assert "* lr = 0.1" in done.words  # the chosen one, without colour, too
    assert "* lr = 1e-06" not in done.words
    (rule,) = tomllib.loads((place / "tuned-sgd.toml").read_text())["rule"]
    assert rule["set"] == {"method": {"lr": 0.1}}
    assert (place / "tuned-sgd.json").exists()
    assert str(tmp_path / "runs") not in (place / "tuned-sgd.toml").read_text()
    refused = deepccg("run", "--preset", "tuned-sgd.toml", "--method", "sgd", "--dataset", folder)
    assert refused.code == 2  # that one does open the test part


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "ewx", "--space", "lr=1"), "unknown method 'ewx'"),
        (("--method", "ewc", "--space", "strength"), "write FIELD=V1,V2"),
        (("--method", "ewc", "--space", "lr=1,2", "--search", "random"), "choose grid or optuna"),
        (("--method", "ewc", "--space", "lr=log:1:2"), "a grid needs values"),
        (("--method", "ewc", "--space", "lr=1", "--scenario", "tusk"), "scenario should be"),
        (("--space", "lr=1"), "Missing option '--method'"),
        ((*SGD, "--set", "evaluation.validation=0.5"), "with --set: use --validation"),
        ((*SGD, "--set", "evaluation.every=task"), "evaluation.every cannot be fixed with --set"),
        ((*SGD, "--set", "preset=paper"), "preset cannot be fixed with --set"),
        ((*SGD, "--set", "scenario=class"), "with --set: use --scenario"),
        ((*SGD, "--set", "dataset=cifar10"), "with --set: use --dataset"),
        ((*SGD, "--set", "method=er"), "with --set: use --method"),
        ((*SGD, "--set", "method.name=er"), "with --set: use --method"),
        ((*SGD, "--set", "stream=shifting-window"), "with --set: use --stream"),
        ((*SGD, "--set", "stream.kind=shifting-window"), "with --set: use --stream"),
        ((*SGD, "--set", "seed=3"), "with --set: use --seeds"),
        ((*SGD, "--stream", "joint"), "use --stream disjoint --set stream.joint=tasks"),
        ((*SGD, "--stream", "disjoint,joint"), "use --stream disjoint --set stream.joint=tasks"),
        ((*SGD, "--scenario", "task,tusk"), "scenario should be"),  # before the first is searched
    ],
)
def test_bad_input_is_rejected_in_one_line(deepccg, place: Path, words, message: str) -> None:
    done = deepccg("tune", *words)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert not list(place.iterdir())
