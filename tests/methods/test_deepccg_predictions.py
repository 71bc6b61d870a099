"""DeepCCG's classifier is derived from memory under the present network, and never stale."""

import math

import pytest
import torch

from deepccg.core import State, Task
from deepccg.gaussian import class_posterior, fitted_scale
from deepccg.methods import ER, DeepCCG

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (2, 3)), None)
LABELS = ([0, 1, 2, 1, 0], [3, 2, 3, 2], [1, 3, 0])


def teach(world, learner, rounds=3):
    for task, labels in zip(WINDOWS * rounds, LABELS * rounds, strict=True):
        learner.learn(world.batch(labels, task))
    return learner


def deepccg(world, memory=11, learner_class=DeepCCG, classes=(), **fields):
    config = DeepCCG.Config(**{"lr": 0.05, "replay": 4, **fields})
    return learner_class(world.network(), config, memory=memory, classes=classes)


def assert_predicts_from_memory(world, learner, task):
    """Against normal densities around the means of what is stored, embedded now."""
    x = world.batch([0, 1, 2, 3]).x
    scale = learner.config.embedding_scale
    with torch.no_grad():
        z, held = scale * learner.network(x), scale * learner.network(learner.memory.x)
    owners = torch.tensor([label for label, _ in world.who(learner.memory.x)])
    allowed = [c for c in learner.classes if task is None or c in task.classes]
    counts = {c: int((owners == c).sum()) for c in allowed}
    shared = sum(counts.values()) / len(counts)
    scores = []
    for c in allowed:
        n = shared if learner.config.variance == "shared" else counts[c]
        normal = torch.distributions.Normal(held[owners == c].mean(dim=0), math.sqrt(1 + 1 / n))
        scores.append(normal.log_prob(z).sum(dim=1))
    expected = torch.softmax(torch.stack(scores, dim=1), dim=1)
    columns = [learner.columns(task).index(c) for c in allowed]
    found = learner.predict_proba(x, task)
    torch.testing.assert_close(found[:, columns], expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(len(x), dtype=torch.float64))


@pytest.mark.parametrize("variance", ["shared", "per-class"])
def test_predictions_are_the_posterior_predictive_under_the_present_network(world, variance):
    learner = deepccg(world, variance=variance, embedding_scale=1.5)
    for _ in range(3):
        teach(world, learner, rounds=1)
        for task in (*WINDOWS, Task(7, (0, 3))):
            assert_predicts_from_memory(world, learner, task)


class Stale(DeepCCG):
    """Wrong: the posterior computed before a step is used after it."""

    def learn(self, batch):
        kept = self._classifier
        info = super().learn(batch)
        self._classifier = kept
        return info


def test_a_stale_posterior_is_told_apart(world):
    learner = teach(world, deepccg(world, learner_class=Stale, embedding_scale=1.5))
    assert_predicts_from_memory(world, learner, None)  # none computed before: nothing stale yet
    teach(world, learner, rounds=1)
    with pytest.raises(AssertionError):
        assert_predicts_from_memory(world, learner, None)


def moved(state: State, **buffers: torch.Tensor) -> State:
    """The state of the same learner whose network is followed by a turn or a shift."""
    replaced = {f"network.{name}": value for name, value in buffers.items()}
    assert replaced.keys() <= state.tensors.keys()
    return State({**state.tensors, **replaced}, state.meta)


@pytest.mark.parametrize("variance", ["shared", "per-class"])
@pytest.mark.parametrize("scale", [1.5, "fitted", "learned"])
@pytest.mark.parametrize("change", ["shift", "turn", "both"])
def test_a_shift_or_turn_of_all_embeddings_changes_no_prediction(world, change, scale, variance):
    """One-step adaptation: the classifier follows the network without any training."""
    learner = teach(world, deepccg(world, embedding_scale=scale, variance=variance))
    shift = torch.tensor([5.0, -7.0, 11.0], dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=world.generator).double())[0]
    buffers = {"shift": {"shift": shift}, "turn": {"turn": turn}}
    buffers["both"] = buffers["shift"] | buffers["turn"]
    other = deepccg(world, embedding_scale=scale, variance=variance)
    other.load_state_dict(moved(learner.state_dict(), **buffers[change]))
    x = world.batch([0, 1, 2, 3, 0, 1]).x
    for task in (*WINDOWS, None):
        torch.testing.assert_close(
            other.predict_proba(x, task), learner.predict_proba(x, task), rtol=1e-8, atol=1e-10
        )


@pytest.mark.parametrize("change", ["shift", "turn"])
def test_a_learned_head_does_not_follow(world, change):
    config = ER.Config(lr=0.05)
    learner = teach(world, ER(world.network(), config, memory=11))
    value = {
        "shift": torch.tensor([5.0, -7.0, 11.0], dtype=torch.float64),
        "turn": -torch.eye(3, dtype=torch.float64),
    }[change]
    other = ER(world.network(), config, memory=11)
    other.load_state_dict(moved(learner.state_dict(), **{change: value}))
    x = world.batch([0, 1, 2, 3, 0, 1]).x
    difference = (other.predict_proba(x) - learner.predict_proba(x)).abs().max()
    assert difference > 0.05


def test_fitted_scale_is_that_of_the_memory(world):
    learner = teach(world, deepccg(world, embedding_scale="fitted"))
    with torch.no_grad():
        z = learner.network(learner.memory.x)
    y = learner.memory.y
    expected = fitted_scale(z, y, class_posterior(z, y, len(learner.classes)))
    scale = learner.current_classifier().scale
    torch.testing.assert_close(scale, expected)
    assert float(scale) != pytest.approx(1.0)


def test_learned_scale_sharpens_predictions_as_it_moves(world):
    learner = teach(world, deepccg(world, embedding_scale="learned"))
    scale = learner.current_classifier().scale
    assert float(scale.log()) == pytest.approx(float(learner.log_scale.log.detach()))
    x = world.batch([0, 1, 2, 3]).x
    before = learner.predict_logits(x)
    state = learner.state_dict()
    state.tensors["scale.log"] += math.log(2)
    learner.load_state_dict(state)
    spread = learner.predict_logits(x).diff(dim=1)
    torch.testing.assert_close(spread, 4 * before.diff(dim=1))


def test_normalised_embeddings_forget_their_length(world):
    learner = teach(world, deepccg(world, normalise=True))
    twice = deepccg(world, normalise=True)
    doubled = 2 * torch.eye(3, dtype=torch.float64)
    twice.load_state_dict(moved(learner.state_dict(), turn=doubled))
    x = world.batch([0, 1, 2, 3]).x
    torch.testing.assert_close(twice.predict_proba(x), learner.predict_proba(x))


def test_a_class_without_stored_examples_cannot_be_predicted(world):
    learner = deepccg(world, memory=2)
    for _ in range(3):
        learner.learn(world.batch([8, 9, 4, 5]))
    x = world.batch([8, 9, 4, 5]).x
    probabilities = learner.predict_proba(x)
    assert learner.columns() == (8, 9, 4, 5)
    assert bool((probabilities[:, 2:] == 0).all())
    assert bool((probabilities[:, :2] > 0).all())


def test_without_evidence_the_prediction_is_uniform_over_the_classes_seen(world):
    learner = deepccg(world, memory=2)
    for _ in range(3):
        learner.learn(world.batch([8, 9, 4, 5]))
    x = world.batch([4]).x
    assert learner.predict_proba(x, Task(3, (4, 5))).tolist() == [[0, 0, 0.5, 0.5]]
    assert learner.predict_proba(x, Task(3, (4, 6))).tolist() == [[0, 0, 1, 0, 0]]
    empty = deepccg(world, memory=0)
    empty.learn(world.batch([8, 9]))
    assert empty.predict_proba(x).tolist() == [[0.5, 0.5]]


def test_a_second_question_does_not_embed_the_memory_again(world):
    learner = teach(world, deepccg(world))
    x = world.batch([0, 1]).x
    passed = []
    learner.network.register_forward_pre_hook(lambda _, args: passed.append(len(args[0])))
    learner.predict_logits(x)
    assert sum(passed) == learner.memory.size + 2
    learner.predict_logits_each(x, [WINDOWS[0], WINDOWS[1], None])
    assert sum(passed) == learner.memory.size + 4
