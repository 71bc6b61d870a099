"""Stored examples under a network that never changes: embedded once, and kept with the example."""

import copy

import pytest
import torch
from torch import Tensor, nn

from deepccg.core import Batch, State, Task, make_generator
from deepccg.learners.base import NetworkLearner
from deepccg.memory import EMBEDDING
from deepccg.methods import METHODS, DeepCCG
from deepccg.networks import MLP, Flatten, Fourier

FEATURES, STEPS = 3, 30
TASKS = (Task(0, (0, 1), batches=STEPS // 2), Task(1, (2, 3), batches=STEPS // 2))
STORING = (
    "deepccg", "deepccg-reservoir", "derpp", "entropy-ss", "er", "er-ace", "icarl", "protocl",
)  # fmt: skip


class Counted(nn.Module):
    """Counts the inputs that a network embeds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)  # what frequencies are drawn from
        self.features = Fourier(FEATURES, 9)
        self.dim, self.frozen, self.embedded = self.features.dim, True, 0

    def forward(self, x: Tensor) -> Tensor:
        self.embedded += len(x)
        z: Tensor = self.features(x)
        return z


def batch(step: int) -> Batch:
    task = TASKS[2 * step // STEPS % 2]
    y = torch.tensor(task.classes).repeat(3)
    noise = torch.randn(len(y), FEATURES, generator=make_generator(step, "inputs"))
    return Batch(noise + 2 * torch.eye(4)[y, :FEATURES], y, task)


def learned(name: str, steps: int = STEPS, *, cached: bool = True, **fields: object):
    kind = METHODS[name]
    if not cached:
        kind = type(kind.__name__, (kind,), {"caches_embeddings": False})
    learner = kind(Counted().double(), kind.Config(**fields), memory=12, seed=0)
    for step in range(steps):
        learner.learn(batch(step))
    return learner


def stored_embeddings(learner: NetworkLearner) -> Tensor:
    return learner.network.features(learner.memory.x)


@pytest.mark.parametrize("name", STORING)
def test_learns_as_without(name: str) -> None:
    cached, plain = learned(name), learned(name, cached=False)
    assert torch.equal(cached.memory.x, plain.memory.x)  # draw for draw
    x = batch(99).x
    torch.testing.assert_close(cached.predict_logits(x), plain.predict_logits(x))
    torch.testing.assert_close(cached.memory[EMBEDDING], stored_embeddings(cached))
    with pytest.raises(KeyError):
        plain.memory[EMBEDDING]


@pytest.mark.parametrize("name", ["deepccg", "deepccg-reservoir", "er", "er-ace", "protocl"])
def test_embeds_each_example_once_in_the_step_and_once_to_store_it(name: str) -> None:
    few, many = learned(name, replay=2), learned(name, replay=10)
    coming = 6 * STEPS
    for learner in (few, many):
        assert coming <= learner.network.embedded <= 2 * coming + 2  # 2: to see what it embeds
    plain = learned(name, replay=10, cached=False)
    assert plain.network.embedded > 2 * coming + 2


@pytest.mark.parametrize("posterior", ["exact", "sampled"])
def test_asking_embeds_the_question_only(posterior: str) -> None:
    learner = learned("deepccg", posterior=posterior)
    before = learner.network.embedded
    learner.predict(batch(99).x)
    assert learner.network.embedded - before == 6


def test_a_sampled_posterior_has_nothing_to_estimate() -> None:
    sampled, exact = learned("deepccg", posterior="sampled"), learned("deepccg", posterior="exact")
    assert torch.equal(sampled.memory.x, exact.memory.x)
    assert torch.equal(sampled.predict_logits(batch(99).x), exact.predict_logits(batch(99).x))


@pytest.mark.parametrize("name", STORING)
def test_its_bytes_are_told(name: str) -> None:
    learner = learned(name)
    told = learner.memory_usage().bytes["cached embeddings"]
    assert told == learner.memory.size * learner.dim * 8


@pytest.mark.parametrize("name", STORING)
def test_resumes_bit_for_bit(name: str) -> None:
    whole, first = learned(name), learned(name, STEPS // 2)
    state = copy.deepcopy(first.state_dict())
    again = type(first)(Counted().double(), first.config, memory=12, seed=1)
    again.load_state_dict(state)
    for step in range(STEPS // 2, STEPS):
        again.learn(batch(step))
    assert torch.equal(again.memory[EMBEDDING], whole.memory[EMBEDDING])
    assert torch.equal(again.predict_logits(batch(99).x), whole.predict_logits(batch(99).x))


@pytest.mark.parametrize(("name", "fields"), [("er", {}), ("deepccg", {"posterior": "sampled"})])
def test_a_state_from_before_is_completed(name: str, fields: dict[str, object]) -> None:
    older, learner = learned(name, cached=False, **fields), learned(name, 0, **fields)
    state = older.state_dict()
    state = State(state.tensors, {**state.meta, "method": type(learner).__name__})
    learner.load_state_dict(state)
    torch.testing.assert_close(learner.memory[EMBEDDING], stored_embeddings(learner))
    learner.learn(batch(0))


def test_a_cache_of_another_width_is_refused() -> None:
    learner = learned("er")
    state = learner.state_dict()
    state.tensors[f"memory.{EMBEDDING}"] = torch.zeros(12, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="memory holds cached_embedding"):
        learner.load_state_dict(state)


def test_a_network_that_learns_or_only_passes_on_has_none() -> None:
    for network in (MLP(features=FEATURES), Flatten(FEATURES)):
        learner = DeepCCG(network, memory=12, seed=0)
        learner.learn(batch(0))
        assert "cached embeddings" not in learner.memory_usage().bytes
