"""Per-example gradients against a loop over the examples."""

import pytest
import torch
from torch import nn

from deepccg.core import InputError
from deepccg.methods.losses import masked_cross_entropy
from deepccg.methods.per_example import per_example_gradients
from deepccg.networks import MLP, SlimResNet18

NETWORKS = {
    "mlp": lambda: MLP(3 * 16 * 16, (7, 5)),
    "resnet": lambda: SlimResNet18(width=2),
    "fixed norms": lambda: SlimResNet18(width=2, affine=False),
}


def problem(network):
    torch.manual_seed(0)
    modules = [network.double(), nn.Linear(network.dim, 4).double()]
    x = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8)
    y = torch.tensor([0, 1, 1, 3, 2])
    mask = torch.tensor([[True, True, False, False]] * 3 + [[False, True, True, True]] * 2)
    return modules, x, y, mask


@pytest.mark.parametrize("name", NETWORKS)
def test_each_gradient_is_that_of_its_example_alone(name):
    modules, x, y, mask = problem(NETWORKS[name]())
    modules[1].bias.requires_grad_(False)
    trained = [p for module in modules for p in module.parameters() if p.requires_grad]
    gradients, losses = per_example_gradients(modules, x, y, mask)
    for i in range(len(x)):
        one = slice(i, i + 1)
        loss = masked_cross_entropy(nn.Sequential(*modules)(x[one]), y[one], mask[one])[0]
        torch.testing.assert_close(losses[i], loss.detach())
        expected = torch.autograd.grad(loss, trained)
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours[i], theirs, rtol=1e-8, atol=1e-10)
    mean = masked_cross_entropy(nn.Sequential(*modules)(x), y, mask).mean()
    for ours, theirs in zip(gradients, torch.autograd.grad(mean, trained), strict=True):
        torch.testing.assert_close(ours.mean(dim=0), theirs, rtol=1e-8, atol=1e-10)


def test_nothing_is_left_behind():
    modules, x, y, mask = problem(MLP(3 * 16 * 16, (7, 5)))
    before = [p.clone() for module in modules for p in module.parameters()]
    gradients, losses = per_example_gradients(modules, x, y, mask)
    parameters = [p for module in modules for p in module.parameters()]
    assert all(p.grad is None for p in parameters)
    assert all(map(torch.equal, before, parameters))
    assert not losses.requires_grad
    assert not any(g.requires_grad for g in gradients)


def test_networks_that_couple_examples_are_refused():
    modules = [nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.BatchNorm1d(2)), nn.Linear(2, 2)]
    x, y = torch.zeros(3, 4), torch.tensor([0, 1, 1])
    with pytest.raises(InputError, match="use a network with instance, group or layer norm"):
        per_example_gradients(modules, x, y, torch.ones(3, 2, dtype=torch.bool))
