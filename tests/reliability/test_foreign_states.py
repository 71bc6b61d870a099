"""States of another method, shape or version, or tampered with: one line, and nothing changes."""

import contextlib
import copy
import json
import math
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from deepccg.core import (
    Batch,
    Diverged,
    InputError,
    Learner,
    State,
    StateMismatch,
    Task,
    make_generator,
)
from deepccg.learners.state import FORMAT
from deepccg.methods import ER, METHODS
from deepccg.networks import NetworkConfig, build_network

CASES = settings(max_examples=int(os.environ.get("DEEPCCG_FUZZ_CASES", "60")))
TASKS = (Task(0, (4, 9), batches=2), Task(1, (9, 2), batches=2))


def learner_of(name: str, seed: int = 0, layers: tuple[int, ...] = (5, 3)) -> Learner:
    network = build_network(NetworkConfig(kind="mlp", layers=layers), (2,), seed)
    return METHODS[name](network, memory=4, seed=seed)


def batch(step: int) -> Batch:
    task = TASKS[step // 2 % 2]
    x = torch.randn(3, 2, generator=make_generator(step, "batch"))
    return Batch(x, torch.tensor([*task.classes, task.classes[0]]), task)


@cache
def states(name: str) -> tuple[State, State]:
    """One to load, and one of a learner it is not loaded into."""
    found = []
    for seed, steps in ((0, 5), (1, 3)):
        learner = learner_of(name, seed)
        for step in range(steps):
            learner.learn(batch(step))
        found.append(learner.state_dict())
    return found[0], found[1]


def same(one: State, other: State) -> bool:
    return (
        one.meta == other.meta
        and one.tensors.keys() == other.tensors.keys()
        and all(torch.equal(one.tensors[key], other.tensors[key]) for key in one.tensors)
    )


def refused_whole(name: str, state: State, says: str = "") -> None:
    learner = learner_of(name)
    learner.load_state_dict(states(name)[1])
    with pytest.raises(StateMismatch, match=says) as caught:
        learner.load_state_dict(state)
    assert str(caught.value).isprintable()
    assert same(states(name)[1], learner.state_dict())


@pytest.mark.slow_for_most
@pytest.mark.parametrize("name", METHODS)
def test_other_methods_shapes_and_versions_are_refused(name: str) -> None:
    tensors, meta = states(name)[0].tensors, states(name)[0].meta
    for other in METHODS.keys() - {name}:
        refused_whole(name, states(other)[0], "the state belongs to .*, not to")
    wider = learner_of(name, layers=(5, 4))
    wider.learn(batch(0))
    refused_whole(name, wider.state_dict(), "differs from the state's at")
    for number in (0, -1, FORMAT + 1, "1", None, 1.5, True):
        refused_whole(name, State(tensors, {**meta, "format": number}), "the state has format")
    without = {key: value for key, value in meta.items() if key != "format"}
    refused_whole(name, State(tensors, without), f"format None, this version reads 1 to {FORMAT}")


@pytest.mark.parametrize("name", METHODS)
def test_a_state_that_is_not_finite_is_refused(name: str) -> None:
    state = states(name)[0]
    for value in (math.nan, math.inf):
        tensors = {key: tensor.clone() for key, tensor in state.tensors.items()}
        tensors["network.layers.0.weight"][0, 0] = value
        bad = State(tensors, state.meta)
        assert bad.not_finite() == ["network.layers.0.weight"]
        refused_whole(name, bad, r"network\.layers\.0\.weight is not finite: the learner had")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("meta", [[], None, "x", 3])
def test_a_state_without_a_header_is_refused(name: str, meta: Any) -> None:
    refused_whole(name, State(states(name)[0].tensors, meta), "the state has format None")


@pytest.mark.parametrize("name", ["er", "deepccg", "infogs", "derpp"])
@pytest.mark.parametrize(("column", "value"), [("y", 3), ("y", -1), ("task", 3), ("task", -1)])
def test_stored_examples_of_unknown_classes_or_tasks_are_refused(
    name: str, column: str, value: int
) -> None:
    state = states(name)[0]
    tensors = {key: tensor.clone() for key, tensor in state.tensors.items()}
    tensors[f"memory.{column}"][0] = value
    refused_whole(name, State(tensors, state.meta), f"memory holds {column} outside 0 to 2")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a tree of JSON."""
    inner = dict(enumerate(value)) if isinstance(value, list) else value
    found = [path] if path else []
    if isinstance(inner, dict):
        found += [place for key, each in inner.items() for place in places(each, (*path, key))]
    return found


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 6)
    | st.sampled_from([2**63, -(2**63) - 1, 10**30, 1.5, math.nan, math.inf, "x", "0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("shape"), inner),
)


@pytest.mark.slow
@CASES
@given(st.sampled_from(sorted(METHODS)), st.data())
def test_any_change_of_the_header_is_loaded_or_refused(name: str, data: st.DataObject) -> None:
    state, before = states(name)
    meta = copy.deepcopy(state.meta)
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from([p for p in places(meta) if p != ("config",)]))
        parent = meta
        for key in way:
            parent = parent[key]
        if data.draw(st.booleans()):
            parent[last] = data.draw(junk)
        else:
            del parent[last]
    load_or_refuse(name, State(state.tensors, meta), before)


@pytest.mark.slow
@CASES
@given(st.sampled_from(sorted(METHODS)), st.data())
def test_any_change_of_a_tensor_is_loaded_or_refused(name: str, data: st.DataObject) -> None:
    state, before = states(name)
    key = data.draw(st.sampled_from(sorted(state.tensors)))
    tensor = state.tensors[key]
    changed = data.draw(
        st.sampled_from(
            [
                tensor.flatten(),
                tensor[None],
                tensor.reshape(-1)[:0],
                torch.zeros(()),
                torch.zeros(2, 3),
                tensor.double() * 3,
                -tensor.to(torch.int64) - 1,
                torch.full_like(tensor, 77),
                tensor != 0,
            ]
        )
    )
    load_or_refuse(name, State({**state.tensors, key: changed}, state.meta), before)


def load_or_refuse(name: str, state: State, before: State) -> None:
    learner = learner_of(name)
    learner.load_state_dict(before)
    with warnings.catch_warnings(action="ignore"):  # other fields are loaded with a warning
        try:
            learner.load_state_dict(state)
        except StateMismatch as error:
            said = str(error)
            assert said.isprintable()
            assert same(before, learner.state_dict())
    with contextlib.suppress(InputError, Diverged):  # a state may know other classes of the task
        learner.learn(batch(0))
        learner.predict(batch(0).x, TASKS[0])


def stored(number: int) -> State:
    """ER on a layer of three, memory 3, after four batches: as version 0.1 saved it."""
    file = Path(__file__).parent / "data" / f"format_{number}.state"
    with safe_open(file, framework="pt") as opened:
        header = json.loads(opened.metadata()["deepccg"])
        return State({key: opened.get_tensor(key) for key in opened.keys()}, header["state"])  # noqa: SIM118


@pytest.mark.parametrize("number", range(1, FORMAT))
def test_states_of_older_formats_are_loaded(number: int) -> None:
    state = stored(number)
    assert state.meta["format"] == number
    network = build_network(NetworkConfig(kind="mlp", layers=(3,)), (2,), 1)
    learner = ER(network, memory=3, seed=1)
    learner.load_state_dict(state)
    assert learner.state_dict().meta["format"] == FORMAT
    assert learner.inputs.shape == (2,)
    losses = []
    for step in (4, 5):
        x = torch.randn(3, 2, generator=make_generator(step, "batch"))
        losses.append(learner.learn(Batch(x, torch.tensor([4, 9, 4]), Task(0, (4, 9)))).loss)
    assert losses == pytest.approx([0.6614482402801514, 0.6586132049560547], rel=1e-5)


def test_an_older_state_that_is_incomplete_is_refused() -> None:
    state = stored(1)
    for tensors, meta in (
        ({}, state.meta),
        (state.tensors, {"format": 1}),
        (state.tensors, {**state.meta, "parts": 3}),
    ):
        with pytest.raises(StateMismatch, match="the state of format 1 is incomplete"):
            ER(build_network(NetworkConfig(kind="mlp", layers=(3,)), (2,), 1)).load_state_dict(
                State(tensors, meta)
            )
