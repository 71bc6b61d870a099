"""The auditor's instruments: what is in reach, which examples are in it, what was passed."""

import copy
import io
from collections import deque
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, vmap

from deepccg.core import State
from deepccg.experiment.audit.examples import ExampleIndex
from deepccg.experiment.audit.measure import PassCounter, fingerprint
from deepccg.experiment.audit.reach import Reach, bytes_by_name
from deepccg.experiment.audit.verdict import PredictionSample
from deepccg.networks import MLP


class Slotted:
    __slots__ = ("inside",)


def test_tensors_are_found_wherever_they_are() -> None:
    slotted = Slotted()
    slotted.inside = {"key": [(torch.full((1,), 1.0),)]}
    module = nn.Linear(1, 1, bias=False)
    read_only = np.array([3.0])
    read_only.flags.writeable = False
    call = partial(print, torch.full((1,), 5.0))
    thing = [slotted, deque([torch.full((1,), 2.0)]), read_only, frozenset({b"\x04"}), module, call]
    thing.append(thing)  # a circle
    found = sorted(float(part.values.flatten()[0]) for part in Reach(thing, code=False).parts)
    assert found == sorted([1.0, 2.0, 3.0, 4.0, 5.0, module.weight.item()])


class Proxy:
    """Answers no question about itself."""

    @property
    def __class__(self) -> type:
        raise RuntimeError("ask somebody else")

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def deep(levels: int) -> list:
    inner: list = []
    for _ in range(levels):
        inner = [inner]
    return inner


ODD = {
    "without values": torch.empty(9, 9, device="meta"),
    "without end": torch.zeros(1).expand(10**12),
    "array without end": np.broadcast_to(np.zeros(1), (10**10,)),
    "short": torch.zeros(3, dtype=torch.bfloat16),
    "complex": torch.zeros(3, dtype=torch.complex64).conj(),
    "lazy": nn.LazyLinear(2),
    "dates": np.array(["2020-01-01"], dtype="M8[D]"),
    "reversed": np.arange(5, dtype=">i4")[::-1],
    "long": np.zeros(3, dtype=np.longdouble),
    "records": np.zeros(3, dtype=[("label", "i4"), ("thing", "O")]),
    "numbers": [10**400, 1],
    "deep": deep(5_000),
    "closed": io.BytesIO(),
    "proxy": Proxy(),
    "error": RuntimeError("of a step"),
}
ODD["closed"].close()


@pytest.mark.parametrize("what", ODD)
def test_nothing_odd_ends_the_walk(what: str) -> None:
    reach = Reach([ODD[what], {"key": torch.full((1,), 7.0)}], code=False)
    assert any(part.values.shape == (1,) and part.values[0] == 7 for part in reach.parts)
    assert sum(bytes_by_name(reach.parts).values()) < 1_000


def test_a_frame_is_not_in_reach_of_an_error() -> None:
    hidden = torch.zeros(1)
    with pytest.raises(RuntimeError) as raised:
        raise RuntimeError(str(hidden))
    assert Reach([raised.value], code=False).parts == []


def test_views_of_one_storage_count_once() -> None:
    whole = torch.zeros(10, 4)
    things = [whole, whole[2:5], whole.T, torch.zeros(3), whole.numpy()[1:]]
    assert bytes_by_name(Reach(things, code=False).parts) == {"learner": 160 + 12}


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_examples_are_found_as_by_brute_force(data: st.DataObject) -> None:
    byte = st.integers(0, 255)
    rows = st.lists(st.lists(byte, min_size=4, max_size=4), min_size=1, max_size=6)
    known, held = data.draw(rows), data.draw(rows)
    held += data.draw(st.lists(st.sampled_from(known), max_size=4))
    index = ExampleIndex((1, 2, 2))
    index.add(torch.tensor(known, dtype=torch.uint8).reshape(-1, 1, 2, 2))
    expected = {tuple(row) for row in held if row in known and len(set(row)) > 1}
    kept = torch.tensor(held, dtype=torch.uint8).reshape(-1, 1, 2, 2)
    assert len(index.found_in([kept.numpy(), kept.flatten(1).numpy()])) == len(expected)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_examples_are_found_among_others_as_by_brute_force(data: st.DataObject) -> None:
    known = data.draw(st.lists(st.binary(min_size=6, max_size=6), min_size=1, max_size=5))
    pieces = st.one_of(st.sampled_from(known), st.binary(max_size=9))
    held = b"".join(data.draw(st.lists(pieces, max_size=8)))
    index = ExampleIndex((1, 2, 3))
    index.add(torch.tensor([list(row) for row in known], dtype=torch.uint8))
    windows = {held[i : i + 6] for i in range(len(held) - 5)}
    expected = {row for row in windows & set(known) if len(set(row)) > 1}
    values = np.frombuffer(held, dtype=np.uint8)
    for kept in (values, values.astype(np.int64)):
        assert len(index.found_in([kept])) == len(expected)
    for kept in (values.astype(np.float64), values / 255):  # may be decoded in several ways
        assert len(index.found_in([kept])) >= len(expected)


def test_long_rows_are_searched_to_their_end() -> None:
    generator = np.random.default_rng(0)
    known, held = generator.integers(0, 256, (9, 50), dtype=np.uint8), np.zeros(200_001, np.uint8)
    places = [0, 32_768 - 50, 32_768 - 49, 65_536, 98_280, 131_000, 150_123, 199_900, 199_951]
    for row, place in zip(known, places, strict=True):
        held[place : place + 50] = row
    index = ExampleIndex((50,))
    index.add(torch.from_numpy(known))
    # The second was written over by the third, but for its first value.
    assert len(index.found_in([held])) == 8
    vectors = known.astype(np.float32) * np.float32(0.1)
    index = ExampleIndex((50,))
    index.add(torch.from_numpy(vectors))
    among_labels = np.hstack([np.arange(9.0)[:, None], vectors])
    assert len(index.found_in([among_labels])) == 9


@pytest.mark.parametrize(
    "arranged",
    [
        lambda x: x.permute(0, 2, 3, 1),  # channels last
        lambda x: x.flatten(1).T,
        lambda x: x.permute(1, 2, 3, 0),
        lambda x: x[:, None],
        lambda x: x[:1].permute(0, 2, 3, 1)[0],
    ],
)
def test_images_are_found_however_their_axes_lie(arranged) -> None:
    x = torch.randint(0, 256, (4, 3, 5, 6), dtype=torch.uint8)
    index = ExampleIndex((3, 5, 6))
    index.add(x)
    held = arranged(x)
    for values in (held, held.contiguous(), held / 255):
        assert len(index.found_in([values.numpy()])) == (1 if held.ndim == 3 else 4)


def test_vectors_are_found_in_any_precision() -> None:
    x = torch.randn(5, 3, dtype=torch.float64)
    index = ExampleIndex((3,))
    index.add(x)
    assert len(index.found_in([x[:2].float().numpy(), x[1:3].numpy()])) == 3
    others = [x + 1e-3, torch.zeros(4, 3), torch.zeros(2, 3, dtype=torch.int64)]
    assert not index.found_in(other.numpy() for other in others)


def counts(counter: PassCounter) -> list[int]:
    return list(counter.counts["learning"].values())


def test_passes_forwards_and_backwards() -> None:
    network, counter = MLP(4, (3,)), PassCounter()
    counter.attach(network, 3)
    x = torch.randn(5, 4)
    with torch.no_grad():
        network(x)
    assert counts(counter) == [1, 5, 0, 0]
    loss = network(x[:2]).square().sum()
    assert counts(counter) == [2, 7, 0, 0]
    torch.autograd.grad(loss, list(network.parameters()))
    assert counts(counter) == [2, 7, 1, 2]
    copy.deepcopy(network)(x).sum().backward()  # a copy counts, too
    assert counts(counter) == [3, 12, 2, 7]
    counter.phase = "audit"
    network(x).sum().backward()
    assert counts(counter) == [3, 12, 2, 7]


def test_vectorised_passes_count_their_examples() -> None:
    network, counter = MLP(4, (3,)), PassCounter()
    counter.attach(network, 3)
    values = {name: p.detach() for name, p in network.named_parameters()}
    x = torch.randn(5, 4)

    def loss(values: dict, example: torch.Tensor) -> torch.Tensor:
        return functional_call(network, values, example[None]).sum()

    vmap(loss, in_dims=(None, 0))(values, x)
    assert counts(counter) == [1, 5, 0, 0]
    vmap(grad(loss), in_dims=(None, 0))(values, x)
    assert counts(counter) == [2, 10, 1, 5]


@pytest.mark.parametrize("name", ["a", "b", "meta"])
def test_any_change_of_a_state_changes_its_fingerprint(name: str) -> None:
    def state() -> State:
        return State({"a": torch.zeros(()), "b": torch.arange(3)}, {"steps": 1})

    changed = state()
    if name == "meta":
        changed.meta["steps"] = 2
    else:
        changed.tensors[name].view(-1)[0] += 1
    assert fingerprint(state()) == fingerprint(state())
    assert fingerprint(changed) != fingerprint(state())


class Constant:
    """PredictionSample with the given scores, in the order of the first pixel."""

    def __init__(self, scores: torch.Tensor) -> None:
        self.scores = scores

    def predict_logits(self, x: torch.Tensor, task: None) -> torch.Tensor:
        assert task is None
        return self.scores[x[:, 0].long()]


def test_near_ties_may_go_either_way_and_nothing_else() -> None:
    x = torch.arange(4.0)[:, None]
    first = torch.tensor([[0.0, 1.0, -torch.inf], [0.5, 0.5, -torch.inf]] * 2)

    def differing(change: float) -> int:
        answers = PredictionSample(4, 0, 0)
        answers.record(x, first)
        again = first.clone()
        again[1, 1] += change
        return answers.differing(Constant(again))

    assert [differing(change) for change in (0.0, 1e-7, 1e-5, 1e-3, 0.1)] == [0, 0, 0, 1, 1]
    assert differing(-torch.inf) == 0  # the first of equals is what it was
    assert differing(torch.inf) == 1
