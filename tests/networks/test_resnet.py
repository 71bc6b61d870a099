"""The paper's network: its size, its shapes, and that it never couples two examples."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from deepccg.core import InputError
from deepccg.learners.heads import GrowingLinear
from deepccg.networks import NetworkConfig, SlimResNet18, as_float, build_network
from deepccg.networks.resnet import InstanceNorm


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return build_network(NetworkConfig(), (3, 32, 32), seed=0)


def images(count: int, side: int = 32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, side, side), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize(("classes", "expected"), [(100, 282_270), (10, 274_980)])
def test_parameter_counts_with_a_linear_head(network, classes, expected):
    head = GrowingLinear(network.dim)
    head.grow(classes, torch.Generator())
    assert sum(p.numel() for m in (network, head) for p in m.parameters()) == expected


@pytest.mark.parametrize(("width", "affine"), [(10, True), (10, False), (11, True), (20, True)])
def test_parameter_counts_by_formula(width, affine):
    """27 nf + 2724 nf^2 in the convolutions, 150 nf in the norms."""
    count = sum(p.numel() for p in SlimResNet18(3, width, affine).parameters())
    assert count == 27 * width + 2724 * width**2 + 150 * width * affine


@pytest.mark.parametrize("side", [16, 32, 84])
def test_every_image_size_embeds_into_80_dimensions(network, side):
    with torch.no_grad():
        z = network(images(2, side))
    assert z.shape == (2, network.dim) == (2, 80)
    assert bool(torch.isfinite(z).all())
    assert float((z[0] - z[1]).abs().max()) > 1e-3  # pooling did not average everything away


@settings(max_examples=8)
@given(count=st.integers(2, 6), seed=st.integers(0, 1000))
def test_an_embedding_does_not_depend_on_its_batch_mates(count, seed):
    """In double precision, where the order of a convolution's sums cannot hide a coupling."""
    network = build_network(NetworkConfig(), (3, 16, 16), seed=0).double()
    x = as_float(images(count, 16, seed)).double()
    with torch.no_grad():
        alone = torch.cat([network(image[None]) for image in x])
        torch.testing.assert_close(network(x), alone, rtol=1e-11, atol=1e-11)


def test_no_gradient_reaches_a_batch_mate(network):
    x = as_float(images(3, 16)).requires_grad_()
    (gradient,) = torch.autograd.grad(network(x)[0].square().sum(), x)
    assert bool(gradient[0].any())
    assert not gradient[1:].any()  # exactly: one example never touches another


def test_training_mode_equals_evaluation_mode_and_keeps_no_statistics(network):
    x = images(4)
    before = {k: v.clone() for k, v in network.state_dict().items()}
    with torch.no_grad():
        training = network.train()(x)
        evaluation = network.eval()(x)
    assert torch.equal(training, evaluation)
    assert not list(network.buffers())
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())


@settings(max_examples=15)
@given(
    count=st.integers(1, 3),
    channels=st.integers(1, 5),
    side=st.integers(2, 7),
    affine=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_instance_norm_is_pytorchs(count, channels, side, affine, seed):
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = InstanceNorm(channels, affine), nn.InstanceNorm2d(channels, affine=affine)
    if affine:
        for parameter in ("weight", "bias"):
            value = torch.randn(channels, generator=generator)
            getattr(ours, parameter).data, getattr(theirs, parameter).data = value, value
    x = 3 * torch.randn(count, channels, side, side, generator=generator) + 2
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


class TextbookBlock(nn.Module):
    """The block as one would write it down, with PyTorch's own instance normalisation."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.InstanceNorm2d(outputs, affine=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.InstanceNorm2d(outputs, affine=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.InstanceNorm2d(outputs, affine=True),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(hidden)) + self.shortcut(x))


class TextbookResNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.InstanceNorm2d(width, affine=True)
        )
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(
            *(
                TextbookBlock(inputs if first else outputs, outputs, 2 if first and stage else 1)
                for stage, (inputs, outputs) in enumerate(pairwise(widths))
                for first in (True, False)
            )
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stages(torch.relu(self.stem(x / 127.5 - 1))).mean(dim=(2, 3))


@pytest.mark.parametrize("side", [16, 20])
def test_outputs_and_gradients_are_those_of_the_network_as_one_would_write_it_down(side):
    ours, theirs = SlimResNet18(width=4).double(), TextbookResNet(width=4).double()
    generator = torch.Generator().manual_seed(1)
    for parameter in ours.parameters():  # also the norms', which start at 1 and 0
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    theirs.load_state_dict(ours.state_dict())
    x = images(5, side)
    z, expected = ours(x), theirs(x.double())
    torch.testing.assert_close(z, expected, rtol=1e-11, atol=1e-11)
    weight = torch.randn(z.shape, generator=generator, dtype=torch.float64)
    for own, other in zip(
        torch.autograd.grad((z * weight).sum(), list(ours.parameters())),
        torch.autograd.grad((expected * weight).sum(), list(theirs.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-10)


def test_bytes_and_the_equivalent_floats_agree(network):
    x = images(2)
    floats = (x.double() / 127.5 - 1).float()
    assert float(as_float(x).min()) >= -1
    assert float(as_float(x).max()) <= 1
    assert as_float(floats) is floats
    with torch.no_grad():
        torch.testing.assert_close(network(x), network(floats), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 15, 32), (2, 3, 8, 8), (2, 48)])
def test_too_small_images_are_refused(network, shape):
    with pytest.raises(InputError, match="at least 16 pixels"):
        network(torch.zeros(shape))


def test_last_stage_has_more_than_one_pixel_at_the_smallest_side():
    """The reason for the limit: one pixel normalises to zero, whatever it was."""
    network = SlimResNet18()
    with torch.no_grad():
        maps = network.stages(network.stem(torch.zeros(1, 3, 16, 16)))
    assert maps.shape[2:] == (2, 2)
    one_pixel = torch.randn(4, 3, 1, 1, generator=torch.Generator().manual_seed(0))
    assert not InstanceNorm(3, affine=False)(one_pixel).any()
