"""Per-example gradients against a loop over the examples."""

import pytest
import torch
from torch import nn

from deepccg.core import InputError
from deepccg.learners.heads import masked_cross_entropy
from deepccg.learners.per_sample_gradients import per_example_gradients
from deepccg.networks import MLP, Convolution, InstanceNorm, SlimResNet18
from deepccg.networks.kernels import why_not


class Odd(nn.Module):
    """Every way of using layers that the usual networks do not show."""

    dim = 3

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, (3, 2), stride=(2, 3), padding=(0, 1))
        self.groups = nn.GroupNorm(2, 4)
        self.shared = nn.Conv2d(4, 4, 1)
        self.tokens = nn.Linear(6, 2)
        self.norm = nn.LayerNorm((4, 2))
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.unused = nn.Linear(2, 2)
        self.forgotten = nn.Conv2d(4, 1, 1)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.groups(self.conv(x.to(self.last.weight.dtype) / 255)).relu_()
        x = self.shared(torch.tanh(self.shared(x)))
        self.forgotten(x)
        x = self.frozen(self.norm(self.tokens(x.mean(dim=2))).relu_())
        return self.last(x.flatten(1))


class Scaled(nn.Module):
    """With a parameter that belongs to no layer known."""

    dim = 5

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 16 * 16, 5)
        self.scale = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.scale * self.layer(x.to(self.scale.dtype).flatten(1) / 255))


NETWORKS = {
    "mlp": lambda: MLP(3 * 16 * 16, (7, 5)),
    "resnet": lambda: SlimResNet18(width=2),
    "fixed norms": lambda: SlimResNet18(width=2, affine=False),
    "odd": Odd,
    "scaled": Scaled,
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
        expected = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours[i], theirs, rtol=1e-8, atol=1e-10)
    mean = masked_cross_entropy(nn.Sequential(*modules)(x), y, mask).mean()
    expected = torch.autograd.grad(mean, trained, allow_unused=True, materialize_grads=True)
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours.mean(dim=0), theirs, rtol=1e-8, atol=1e-10)


def set_native(modules, which) -> None:
    for module in modules:
        if isinstance(module, which):
            module.native = why_not() is None


class Twice(nn.Module):
    """A layer used twice, and one that the kernels do not know between."""

    dim = 3

    def __init__(self) -> None:
        super().__init__()
        self.network = SlimResNet18(width=2)
        self.shared = Convolution(3, 3, 3)
        self.between = nn.Conv2d(3, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.shared(x.to(self.between.weight.dtype) / 255))
        return self.shared(self.between(x)).mean(dim=(2, 3))


@pytest.mark.parametrize(
    "which",
    [InstanceNorm, Convolution, Convolution | InstanceNorm | SlimResNet18],
    ids=["norms", "convolutions", "all"],
)
@pytest.mark.parametrize("kind", [SlimResNet18, Twice])
def test_with_compiled_kernels_in_single_precision(kind, which):
    network = SlimResNet18(width=2) if kind is SlimResNet18 else Twice()
    modules, x, y, mask = problem(network)
    exact, exact_losses = per_example_gradients(modules, x, y, mask)
    set_native(network.modules(), which)
    single = [m.float() for m in modules]
    gradients, losses = per_example_gradients(single, x, y, mask)
    torch.testing.assert_close(losses.double(), exact_losses, rtol=1e-4, atol=1e-4)
    assert all(p.grad is None for module in single for p in module.parameters())
    for ours, theirs in zip(gradients, exact, strict=True):
        assert ours.shape == theirs.shape
        size = float(theirs.abs().max())
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-4 * max(size, 1e-6))


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
