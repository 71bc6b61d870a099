"""Names of the release before still work, and each warns with the new one."""

import copy
import importlib
import subprocess
import sys

import pytest
import torch

from deepccg.core import Batch, MemoryUsage, StepInfo
from deepccg.deprecation import MOVED_MODULES
from deepccg.learners.heads import HeadLearner
from deepccg.learners.state import StatefulGenerator
from deepccg.methods.sgd import SGD, SGDConfig
from deepccg.networks import MLP
from deepccg.testing import check_learner


def written_for_the_release_before():
    """A method as the old documentation described it."""

    class Old(HeadLearner[SGDConfig]):
        Config = SGDConfig

        def set_up(self, seed):
            super().set_up(seed)
            self.own = torch.Generator().manual_seed(seed)

        def parts(self):
            return {**super().parts(), "own": StatefulGenerator(self.own)}

        def holdings(self):
            return MemoryUsage(super().holdings().examples, {"own": 8})

        def learn(self, batch):
            x, y, _ = self.receive(batch)
            loss = self.descend(torch.nn.functional.cross_entropy(self.logits(x), y), 0.1)
            self.steps += 1
            return StepInfo(loss)

    return Old


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_method_with_the_old_hooks_keeps_the_contract():
    check_learner(written_for_the_release_before())


def test_old_hooks_warn_with_the_new_names():
    with pytest.warns(DeprecationWarning, match="is now") as warned:
        old = written_for_the_release_before()
    named = {str(warning.message) for warning in warned}
    assert named == {
        "Old.set_up is now build_state",
        "Old.parts is now state_parts",
        "Old.holdings is now memory_usage",
    }
    with pytest.warns(DeprecationWarning, match=r"set_up\(\) is now build_state\(\)"):
        learner = old(MLP(features=2))
    assert learner.memory_usage().bytes == {"own": 8}
    with pytest.warns(DeprecationWarning, match=r"descend\(loss, lr\) is now optimise\(loss\)"):
        learner.learn(Batch(torch.randn(4, 2), torch.tensor([0, 1, 0, 1])))


def test_a_step_by_the_old_name_is_the_same_step():
    network = MLP(features=2)
    learners = [SGD(copy.deepcopy(network), seed=1) for _ in range(2)]
    for learner in learners:
        learner.begin_step(Batch(torch.ones(2, 2), torch.tensor([0, 1])))
    losses = [learner.logits(torch.ones(1, 2)).square().sum() for learner in learners]
    learners[0].optimise(losses[0])
    with pytest.warns(DeprecationWarning, match="is now optimise"):
        learners[1].descend(losses[1], 0.1)
    pairs = zip(*(learner.trainable_parameters() for learner in learners), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_step_size_by_the_old_name_is_for_one_step():
    learner = SGD(MLP(features=2), seed=1)
    learner.begin_step(Batch(torch.ones(2, 2), torch.tensor([0, 1])))
    before = [parameter.detach().clone() for parameter in learner.trainable_parameters()]
    loss = learner.logits(torch.ones(1, 2)).square().sum()
    gradients = learner.gradients(learner.logits(torch.ones(1, 2)).square().sum())
    with pytest.warns(DeprecationWarning, match="is now optimise"):
        learner.descend(loss, 0.5)
    for old, gradient, new in zip(before, gradients, learner.trainable_parameters(), strict=True):
        torch.testing.assert_close(new.detach(), old - 0.5 * gradient)
    assert learner.optimiser.lr == learner.config.lr


@pytest.mark.slow
def test_moved_modules_import_with_a_warning():
    code = f"import warnings; warnings.simplefilter('always'); import {', '.join(MOVED_MODULES)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for old, new in MOVED_MODULES.items():
        assert f"DeprecationWarning: {old} is now {new}" in done.stderr


def test_a_moved_module_has_the_names_of_the_new_one():
    sys.modules.pop("deepccg.methods.replay", None)
    with pytest.warns(DeprecationWarning, match=r"is now deepccg\.memory\.buffer"):
        old = importlib.import_module("deepccg.methods.replay")
    new = importlib.import_module("deepccg.memory.buffer")
    assert old.draw_balanced is new.draw_balanced
    assert new.__spec__.name == "deepccg.memory.buffer"
