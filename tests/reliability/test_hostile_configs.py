"""Configurations made to do harm: no way out of a directory, no code, no absurd sizes."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deepccg.core import InputError
from deepccg.experiment import RunConfig, load, resolve, resume, run
from deepccg.experiment.build import build_learner
from deepccg.experiment.resolve import learner_class
from deepccg.methods import METHODS
from deepccg.networks import NetworkConfig, build_network
from deepccg.records import RecordError, RunDirectory
from deepccg.streams import JointStream, build_stream, load_dataset

PATHS = ["../../x", "/etc", "..", ".", "a/../../b", "~"]
TRAPS = [*PATHS, "-rf", "a\0b", "a\nb", "x" * 5000, "\ud800"]


def one_line(said: Any, says: str = "") -> None:
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("Error: ")
    assert says in said.err


@pytest.mark.parametrize("trap", TRAPS, ids=repr)
@pytest.mark.parametrize("field", ["dataset", "preset"])
def test_the_name_of_a_run_stays_inside_its_directory(
    tmp_path: Path, field: str, trap: str
) -> None:
    config = RunConfig(**{field: trap})
    name = config.name()
    inside = tmp_path / name
    assert inside.resolve().parent == tmp_path.resolve()
    assert len(name.encode()) < 256
    inside.mkdir()


def test_a_methods_name_stays_inside_its_directory(tmp_path: Path) -> None:
    config = RunConfig(method={"name": "../../../evil/module:Class"})
    assert (tmp_path / config.name()).resolve().parent == tmp_path.resolve()


@pytest.mark.parametrize("trap", [*TRAPS[:-1], "folder:../..", "folder:", "hf:../x", "hf:x"])
def test_a_data_set_that_leads_elsewhere(command: Callable[..., Any], trap: str) -> None:
    Path("my.toml").write_text(f"dataset = {trap!r}\n".replace("\\x00", "\\u0000"))
    one_line(command("run", "--config", "my.toml", "--out", "out"))
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "name",
    ["hf:../x", "hf:./x", "hf:a/..", "hf:pandas", "hf:json", "hf:a/b:../c", "hf:a/b:", "hf:/a/b"],
)
def test_a_hub_name_is_owner_and_name(tmp_path: Path, name: str) -> None:
    """A single word would name a loader of the library, one of which unpickles files."""
    for data_dir in (None, tmp_path):
        with pytest.raises(InputError, match=r"write hf:owner/name\[:config\]"):
            load_dataset(name, data_dir=data_dir, cache_dir=tmp_path / "cache")


EVIL = """
from pathlib import Path
from deepccg.methods import SGD

Path({mark!r}).write_text("this ran")

class Evil(SGD):
    pass
"""


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that leaves a mark when it is imported; the mark's path."""
    mark = tmp_path / "mark"
    (tmp_path / "evil_package").mkdir()
    for file in ("evil_module.py", "evil_package/inside.py"):
        (tmp_path / file).write_text(EVIL.format(mark=str(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    yield mark
    for name in ("evil_module", "evil_package", "evil_package.inside"):
        sys.modules.pop(name, None)


def test_a_configuration_cannot_have_code_imported(command: Callable[..., Any], trap: Path) -> None:
    Path("my.toml").write_text('[method]\nname = "evil_module:Evil"\n')
    said = command("run", "--config", "my.toml")
    one_line(said, "--config my.toml names code to import: if you trust it, add --method")
    Path("preset.toml").write_text('[[rule]]\nset = { method = { name = "evil_module:Evil" } }\n')
    one_line(command("run", "--preset", "preset.toml"), "preset.toml rule 1 sets method.name")
    assert not trap.exists()
    learner_class("evil_module:Evil")  # as a user who asks for it: the trap was armed
    assert trap.exists()


@pytest.mark.parametrize("name", ["evil_module:Evil", "evil_package.inside:Evil"])
def test_a_run_directory_cannot_have_code_imported(tmp_path: Path, trap: Path, name: str) -> None:
    place = tmp_path / "run"
    run(directory=place, method="sgd", **{"stream.examples_per_class": 4})
    config = (place / "config.toml").read_text()
    (place / "config.toml").write_text(config.replace('"sgd"', f'"{name}"'))
    for entry in (load, resume):
        with pytest.raises(InputError, match=f"was run with {name}: pass that class as learner"):
            entry(place)
    assert not trap.exists()
    assert name.partition(":")[0] not in sys.modules
    learner_class(name)  # as a user who asks for it: the trap was armed
    assert trap.read_text() == "this ran"


DEEP = "a = " + "[" * 50_000
HUGE: dict[str, tuple[str, str]] = {
    "lists without end": (DEEP, "nested too deeply"),
    "tables without end": ("a = " + "{a=" * 50_000, "nested too deeply"),
    "keys without end": (".".join("a" * 5_000) + " = 1", "nested too deeply"),
    "a number of 5,000 digits": ("seed = 1" + "0" * 5_000, "not valid TOML"),
    "a number beyond 64 bits": ("seed = 1" + "0" * 30, "seed is a number of 100 bits"),
    "a text of pages": (f"dataset = '{'x' * 20_000}'", "dataset is a text of 20,000 characters"),
    "two megabytes": ("#" + "x" * 2_000_000, "more than 1,048,576 bytes"),
    "a key of two lines": ('"a\\nb" = 1', "a b is not a field"),
    "a key that colours": ('"\\u001b[31m" = 1', "is not a field"),
    "infinity": ("method.lr = inf", "method.lr should be a finite number"),
    "not a number": ("method.lr = nan", "method.lr should be"),
    "a date": ("dataset = 2024-01-01", "dataset should be a valid string"),
    "more threads than sense": ("threads = 1000000", "threads should be less than or equal"),
    "more memory than sense": ("memory = 1000000000000", "memory should be less than or equal"),
    "passes without end": (
        "stream = {joint = 'tasks', epochs = 1000000000}",
        "more than 100,000,000 reads: lower stream.epochs",
    ),
    "a wide network": ("network = {layers = [10000000, 10000000]}", "is too large"),
    "a wider network": ("network = {layers = [9223372036854775807]}", "is too large"),
    "a network of many layers": (f"network = {{layers = {[1] * 1000}}}", "network.layers should"),
    "a device without numbers": ("device = 'meta'", "device 'meta' cannot be used"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), HUGE.values(), ids=HUGE.keys())
def test_a_configuration_too_large_to_be_meant(
    command: Callable[..., Any], text: str, says: str
) -> None:
    Path("my.toml").write_text(text)
    said = command("run", "--config", "my.toml", "--out", "out")
    one_line(said, says)
    assert len(said.err) < 2500
    assert not list(Path("out").rglob("*.toml"))


@pytest.mark.parametrize("text", [DEEP, "seed = 1" + "0" * 5_000, "#" + "x" * 2_000_000])
def test_a_run_directory_or_preset_with_such_a_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(RecordError, match=r"config\.toml (is not valid TOML: |has )") as caught:
        RunDirectory(tmp_path).config()
    assert str(caught.value).isprintable()
    with pytest.raises(InputError, match=r"config\.toml is not valid TOML: "):
        resolve({"preset": str(tmp_path / "config.toml")})


@pytest.mark.parametrize("text", ["method.lr=" + "[" * 50_000, "seed=1" + "0" * 5_000, "a" * 9_999])
def test_such_an_assignment(command: Callable[..., Any], text: str) -> None:
    one_line(command("run", "--set", text))


@pytest.mark.parametrize("seeds", ["0-99999999999", "1" * 50, "0-9999,20000-99999"])
def test_seeds_without_end(command: Callable[..., Any], seeds: str) -> None:
    one_line(command("run", "--seeds", seeds), "--seeds")


def test_a_preset_that_is_no_file(command: Callable[..., Any]) -> None:
    for preset in ("x" * 5000, "/dev/zero", "..", "a\nb"):
        one_line(command("run", "--preset", preset), "preset")


@pytest.mark.parametrize("shape", [(10**6, 10**6, 10**6), (10**12,), (2**62, 2**62)])
def test_a_network_for_inputs_too_large_to_be_meant(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="is too large"):
        build_network(NetworkConfig(kind="mlp"), shape, 0)
    config = resolve({"method": "er", "network.kind": "mlp"})
    with pytest.raises(InputError, match="is too large"):
        build_learner(config, shape, (0, 1), METHODS["er"])


def test_passes_without_end_are_refused_before_they_are_drawn() -> None:
    stream = build_stream("disjoint", load_dataset("digits").train, classes_per_task=2)
    with pytest.raises(InputError, match="are more than 100,000,000 reads"):
        JointStream(stream, passes=10**9)
