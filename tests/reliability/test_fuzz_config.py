"""Whatever a configuration holds, it becomes a valid run or one line of complaint."""

import os
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from deepccg.cli.run import _read_config, assignment
from deepccg.core import InputError
from deepccg.experiment import RunConfig, overlay, parse_seeds, resolve
from deepccg.experiment.resolve import resolve_config
from deepccg.methods import METHODS
from deepccg.streams import SCHEDULES

CASES = settings(max_examples=int(os.environ.get("DEEPCCG_FUZZ_CASES", "60")))

TABLES = ("stream", "method", "network", "evaluation")
FIELDS = sorted(
    set(RunConfig.model_fields)
    | {f"{table}.{name}" for table in TABLES for name in ("kind", "name", "lr", "layers", "every")}
    | {f"method.{name}" for method in METHODS.values() for name in method.Config.model_fields}
)
keys = st.sampled_from(FIELDS) | st.text(max_size=12) | st.sampled_from([".", "method.", "a.b.c"])
words = st.sampled_from([*METHODS, "default", "paper", "task", "end", "disjoint", "joint", "cpu"])
numbers = st.integers() | st.floats() | st.sampled_from([2**63, -(2**80), 10**400, 1e308, 0, 1])
leaves = st.none() | st.booleans() | numbers | words | st.text(max_size=20)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)
trees = st.dictionaries(keys, values, max_size=6)


likely = st.fixed_dictionaries(
    {},
    optional={
        "dataset": st.sampled_from(["digits", "hf:owner/name", "../../x", "folder:..", "a\nb"]),
        "method": st.sampled_from(sorted(METHODS)),
        "scenario": st.sampled_from(["task", "class"]),
        "seed": st.integers(-1, 2**64),
        "memory": st.integers(-1, 10**10),
        "stream.kind": st.sampled_from([*SCHEDULES, "joint"]),
        "stream.batch_size": numbers,
        "stream.imbalance": numbers,
        "stream.blur": numbers,
        "stream.spread": numbers,
        "stream.domains": numbers,
        "stream.appearance": words | st.sampled_from(["rotation", "permutation"]),
        "stream.epochs": st.integers(0, 3),
        "network.layers": st.lists(st.integers(0, 2**64), max_size=3),
        "evaluation.every": words | st.integers(0, 9),
        "method.lr": st.floats(),
        "device": words,
        "threads": st.integers(0, 2000),
    },
)


def resolves_or_complains(given_settings: dict[str, Any]) -> None:
    try:
        config = resolve(given_settings)
    except InputError as error:
        said = str(error)
        assert said
        assert said.isprintable()
        assert len(said) < 2500
        return
    assert isinstance(config, RunConfig)
    assert resolve(config.model_dump(mode="json", exclude_none=True)) == config
    assert resolve_config(config) is config  # complete: there is nothing to resolve again
    name = config.name()
    assert name
    assert name not in (".", "..")
    assert Path(name).name == name
    assert len(name.encode()) < 256


@CASES
@given(trees)
def test_any_tree_of_settings(tree: dict[str, Any]) -> None:
    resolves_or_complains(tree)


@CASES
@given(likely)
def test_settings_that_are_nearly_right(tree: dict[str, Any]) -> None:
    resolves_or_complains(tree)


@CASES
@given(st.lists(st.tuples(keys, leaves.map(str) | st.text()), max_size=4))
def test_any_assignment_on_the_command_line(pairs: list[tuple[str, str]]) -> None:
    given_settings: dict[str, Any] = {}
    for key, value in pairs:
        try:
            name, parsed = assignment(f"{key}={value}")
        except InputError as error:
            said = str(error)
            assert "FIELD=VALUE" in said
            continue
        given_settings[name] = parsed
    resolves_or_complains(given_settings)


@CASES
@given(st.text(alphabet="0123456789-, x²٣", max_size=40))
def test_any_list_of_seeds(text: str) -> None:
    try:
        assert all(seed >= 0 for seed in parse_seeds(text))
    except InputError as error:
        said = str(error)
        assert said.startswith("--seeds")


def toml_of(tree: dict[str, Any]) -> bytes:
    """What TOML can say of a tree."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items() if inner is not None}
        if isinstance(value, list):
            return [plain(inner) for inner in value if inner is not None]
        return value if not isinstance(value, int) or abs(value) < 2**70 else 2**70

    try:
        return tomli_w.dumps(plain(tree)).encode(errors="surrogatepass")
    except ValueError:
        return repr(tree).encode(errors="surrogatepass")


texts = st.binary(max_size=60) | trees.map(toml_of)


@CASES
@given(texts)
def test_any_configuration_file(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    file.write_bytes(content)
    try:
        from_file = overlay(_read_config(file), {})
    except InputError as error:
        said = str(error)
        assert "is not valid TOML" in said
        return
    resolves_or_complains(from_file)


rules = st.fixed_dictionaries(
    {},
    optional={
        "preset": values,
        "method": words | values,
        "dataset": values,
        "stream": values,
        "scenario": values,
        "set": trees,
        "other": values,
    },
)


@CASES
@given(
    texts | st.lists(rules, max_size=3).map(lambda rule: toml_of({"rule": rule})),
    st.sampled_from(sorted(METHODS)),
)
def test_any_preset_file(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, method: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "preset.toml"
    file.write_bytes(content)
    resolves_or_complains({"preset": str(file), "method": method})
