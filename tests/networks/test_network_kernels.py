"""The compiled kernels compute what PyTorch computes, and are not needed."""

import copy
import os

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from deepccg.networks import NetworkConfig, SlimResNet18, build_network, kernels
from deepccg.networks.kernels import (
    collect_per_sample_gradients,
    convolve,
    instance_norm,
    unavailable_reason,
)
from deepccg.networks.resnet import BasicBlock, Convolution, InstanceNorm

needs_compiler = pytest.mark.skipif(
    unavailable_reason() is not None, reason=f"{unavailable_reason()}"
)


def norms(channels: int, affine: bool, generator: torch.Generator):
    """Ours with the kernel in single, PyTorch's in double precision."""
    ours = InstanceNorm(channels, affine, native=True)
    theirs = nn.InstanceNorm2d(channels, affine=affine)
    for parameter in ours.parameters():
        parameter.data = torch.randn(channels, generator=generator)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs.double()


LAYOUTS = st.sampled_from(["contiguous", "channels last", "batch last", "every second"])


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same numbers, elsewhere in memory."""
    if layout == "channels last":
        return x.clone(memory_format=torch.channels_last)
    if layout == "batch last":
        return x.permute(2, 3, 1, 0).clone().permute(3, 2, 0, 1)
    if layout == "every second":
        return torch.stack([x, 0 * x + 7], dim=-1)[..., 0]
    return x.clone()


def assert_near(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """To single precision, measured by the largest number."""
    size = float(theirs.detach().abs().max()) if theirs.numel() else 1.0
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5 * max(size, 1e-3))


@needs_compiler
@settings(max_examples=60)
@given(
    count=st.integers(0, 34),
    inputs=st.integers(1, 10),
    outputs=st.integers(1, 13),
    height=st.integers(1, 9),
    width=st.integers(1, 9) | st.just(23),
    kernel=st.sampled_from([1, 3, 5]),
    stride=st.integers(1, 3),
    layout=LAYOUTS,
    seed=st.integers(0, 2**31),
)
def test_convolution_and_gradients_against_pytorch(
    count, inputs, outputs, height, width, kernel, stride, layout, seed
):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, inputs, height, width, generator=generator)
    weight = torch.randn(outputs, inputs, kernel, kernel, generator=generator)
    exact, exact_weight = x.double().requires_grad_(), weight.double().requires_grad_()
    mine, mine_weight = laid_out(x, layout).requires_grad_(), weight.clone().requires_grad_()
    y = convolve(mine, mine_weight, stride, kernel // 2)
    expected = F.conv2d(exact, exact_weight, None, stride, kernel // 2)
    assert y.shape == expected.shape
    assert_near(y, expected)
    gradient = laid_out(torch.randn(y.shape, generator=generator), layout)
    y.backward(gradient)
    expected.backward(gradient.double())
    assert_near(mine.grad, exact.grad)
    assert_near(mine_weight.grad, exact_weight.grad)
    mine_weight.grad = None
    with collect_per_sample_gradients(count) as collected:
        y = convolve(mine, mine_weight, stride, kernel // 2)
    y.backward(gradient)
    assert mine_weight.grad is None
    each = collected[id(mine_weight)]
    assert each.shape == (count, *weight.shape)
    for i in range(count):
        alone = F.conv2d(x[i : i + 1].double(), exact_weight, None, stride, kernel // 2)
        (of_one,) = torch.autograd.grad(alone, exact_weight, gradient[i : i + 1].double())
        assert_near(each[i], of_one)


@needs_compiler
@settings(max_examples=60)
@given(
    count=st.integers(0, 18),
    channels=st.sampled_from([1, 2, 3, 8, 10, 16, 20, 40]),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    affine=st.booleans(),
    residual=st.booleans(),
    relu=st.booleans(),
    layout=LAYOUTS,
    seed=st.integers(0, 2**31),
)
def test_norm_with_residual_and_relu_and_gradients_against_pytorch(
    count, channels, height, width, affine, residual, relu, layout, seed
):
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = norms(channels, affine, generator)
    x, added = 3 * torch.randn(2, count, channels, height, width, generator=generator) + 2
    mine, mine_added = (laid_out(each, layout).requires_grad_() for each in (x, added))
    extra = mine_added if residual else None
    y = instance_norm(mine, ours.weight, ours.bias, ours.eps, extra, relu)
    if height * width == 1:  # PyTorch refuses to normalise one pixel
        expected = ours.bias.view(-1, 1, 1).expand_as(x) if affine else 0 * x
        expected = expected + added if residual else expected
        assert torch.equal(y, expected.relu() if relu else expected)
        return
    exact, exact_added = x.double().requires_grad_(), added.double().requires_grad_()
    expected = theirs(exact) if count else exact
    expected = expected + exact_added if residual else expected
    # Where rounding decides which side of zero a number is on, there is nothing to compare.
    clear = (expected.detach().abs() > 1e-4).double() if relu else torch.ones_like(expected)
    expected = expected.relu() if relu else expected
    assert_near(y, expected)
    gradient = laid_out(torch.randn(y.shape, generator=generator) * clear.float(), layout)
    y.backward(gradient)
    # PyTorch's own gradient is wrong for one image if the gradient given is channels-last.
    expected.backward(gradient.double().contiguous())
    if count == 0:
        return
    # The gradient of x is a difference of larger numbers, of the size of 1 / deviation.
    size = float(x.std(dim=(2, 3), correction=0).clamp(min=1e-2).reciprocal().max())
    torch.testing.assert_close(mine.grad.double(), exact.grad, rtol=1e-3, atol=1e-4 * size)
    if residual:
        assert torch.equal(mine_added.grad.double(), exact_added.grad)
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own.grad.double(), other.grad, rtol=1e-3, atol=1e-3)


@needs_compiler
def test_tensors_of_wrong_shape_or_type_are_refused():
    weight, images = torch.zeros(4, 3, 3, 3), torch.zeros(2, 3, 5, 5)
    for wrong in (images[0], images[:, :2], images[:, :, :0]):
        with pytest.raises(ValueError, match="do not fit"):
            convolve(wrong, weight, 1, 1)
    with pytest.raises(ValueError, match="do not fit"):
        convolve(images, weight.double(), 1, 1)
    ones, more = torch.ones(3), torch.zeros(2, 4, 5, 5)
    for wrong in ((torch.ones(4), None), (ones.double(), ones), (ones, ones, more)):
        weight, bias, *residual = wrong
        with pytest.raises(ValueError, match="do not fit"):
            instance_norm(images, weight, bias, 1e-5, *residual)


@needs_compiler
def test_second_derivatives_are_refused():
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        convolve(x, torch.ones(1, 3, 1, 1), 1, 0).square().sum(), x, create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@needs_compiler
def test_a_large_offset_keeps_precision():
    """Where a variance as the difference of two moments would have none left."""
    generator = torch.Generator().manual_seed(0)
    ours, _ = norms(10, False, generator)
    noise = torch.randn(2, 10, 32, 32, generator=generator, dtype=torch.float64)
    x = (noise + 300).float()
    expected = nn.functional.instance_norm(x.double())
    assert float((ours(x).double() - expected).abs().max()) < 1e-3


@needs_compiler
def test_nan_stays_in_its_channel_of_its_image():
    ours, _ = norms(4, True, torch.Generator())
    x = torch.zeros(2, 4, 3, 3)
    x[0, 1, 0, 0] = torch.nan
    for y in (ours(x), ours.activated(x), ours.activated(x, x)):
        assert bool(y[0, 1].isnan().all())
        assert bool(y[1].isfinite().all())


@needs_compiler
def test_a_network_with_kernels_is_the_same_function():
    plain, fast = (
        build_network(NetworkConfig(width=4), (3, 20, 20), 0, native=n) for n in (False, True)
    )
    assert plain.state_dict().keys() == fast.state_dict().keys()
    assert all(torch.equal(v, fast.state_dict()[k]) for k, v in plain.state_dict().items())
    x = torch.randint(0, 256, (6, 3, 20, 20), dtype=torch.uint8)
    z, expected = fast(x), plain(x)
    torch.testing.assert_close(z, expected, rtol=1e-4, atol=1e-4)
    z.square().sum().backward()
    expected.square().sum().backward()
    for ours, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        size = float(theirs.grad.abs().max())
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-2, atol=1e-3 * size)
    torch.testing.assert_close(fast.double()(x), plain.double()(x))  # the kernel is for floats


def outputs_and_gradients(network: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    network.zero_grad()
    z = network(x)
    z.square().sum().backward()
    return [z.detach(), *(p.grad for p in network.parameters())]


@needs_compiler
def test_the_number_of_threads_changes_no_bit():
    network = SlimResNet18(width=4, native=True)
    x = torch.randint(0, 256, (13, 3, 17, 16), dtype=torch.uint8)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(outputs_and_gradients(copy.deepcopy(network), x))
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *found))


@needs_compiler
def test_an_embedding_does_not_depend_on_the_batch():
    network = SlimResNet18(width=3, native=True)
    x = torch.randint(0, 256, (29, 3, 16, 16), dtype=torch.uint8)
    with torch.no_grad():
        together = network(x)
        assert together.shape == (29, 24)
        assert all(torch.equal(network(x[i : i + 1])[0], together[i]) for i in range(len(x)))
        assert network(x[:0]).shape == (0, 24)


@needs_compiler
@pytest.mark.parametrize("stride", [1, 2])
def test_hooks_see_inputs_and_outputs_of_each_layer(stride):
    """A hook is shown, and may change, what a norm gives before the ReLU and the shortcut."""
    block = BasicBlock(3, 4, stride, native=True)
    x = torch.randn(8, 3, 6, 6)
    expected = block(x)
    seen: dict[nn.Module, tuple[torch.Tensor, torch.Tensor]] = {}
    hooks = [
        module.register_forward_hook(lambda m, args, y: seen.update({m: (args[0], y.clone())}))
        for module in block.modules()
        if isinstance(module, Convolution | InstanceNorm)
    ]
    torch.testing.assert_close(block(x), expected)
    assert torch.equal(seen[block.conv1][0], x)
    assert len(seen) == len(hooks) == 6
    for conv, norm in ((block.conv1, block.norm1), (block.conv2, block.norm2)):
        assert torch.equal(seen[norm][0], seen[conv][1])
        torch.testing.assert_close(seen[norm][1], F.instance_norm(seen[conv][1]))
        assert float(seen[norm][1].detach().min()) < 0
    for hook in hooks:
        hook.remove()
    block.norm2.register_forward_hook(lambda _m, _args, y: torch.zeros_like(y))
    torch.testing.assert_close(block(x), block.shortcut(x).relu())


@needs_compiler
def test_only_float32_on_the_cpu_is_native():
    x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    conv, norm = Convolution(4, 2, 3, native=True).double(), InstanceNorm(4, native=True).double()
    assert torch.equal(conv(x), F.conv2d(x, conv.weight, padding=1))
    assert torch.equal(norm(x), F.group_norm(x, 4, norm.weight, norm.bias))
    meta = torch.zeros(3, 4, 5, 5, device="meta")
    assert conv.float().to("meta")(meta).shape == (3, 2, 5, 5)


@pytest.mark.usefixtures("without_compiler")
def test_without_a_compiler_pytorch_is_used_with_one_warning():
    with pytest.warns(UserWarning, match=r"^no C\+\+ compiler was found: PyTorch's own") as warned:
        network = build_network(NetworkConfig(width=2), (3, 16, 16), 0, native=True)
    assert len(warned) == 1
    assert network(torch.zeros(1, 3, 16, 16)).shape == (1, 16)


@needs_compiler
def test_the_next_process_reuses_the_compiled_library(tmp_path, forks):
    environment = {**os.environ, "DEEPCCG_CACHE": str(tmp_path)}
    program = "from deepccg.networks import kernels; assert kernels.unavailable_reason() is None"
    written = []
    for _ in range(2):
        assert forks(program, str(tmp_path), environment=environment).status == 0
        (library,) = (tmp_path / "kernels").iterdir()  # and nothing half written
        written.append(library.stat().st_mtime_ns)
    assert written[0] == written[1]


def test_a_failing_compiler_is_reported(tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    kernels._library.cache_clear()
    try:
        assert unavailable_reason() == "broken could not compile the kernels"
        assert list((tmp_path / "cache" / "kernels").iterdir()) == []
    finally:
        kernels._library.cache_clear()
