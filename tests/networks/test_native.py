"""The compiled kernel computes what PyTorch computes, and is not needed."""

import copy
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from deepccg.networks import NetworkConfig, SlimResNet18, build_network, native
from deepccg.networks.native import why_not
from deepccg.networks.resnet import InstanceNorm

needs_compiler = pytest.mark.skipif(why_not() is not None, reason=f"{why_not()}")


def norms(channels: int, affine: bool, generator: torch.Generator):
    """Ours with the kernel in single, PyTorch's in double precision."""
    ours = InstanceNorm(channels, affine, native=True)
    theirs = nn.InstanceNorm2d(channels, affine=affine)
    for parameter in ours.parameters():
        parameter.data = torch.randn(channels, generator=generator)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs.double()


@needs_compiler
@settings(max_examples=40)
@given(
    count=st.integers(1, 4),
    channels=st.sampled_from([1, 2, 3, 8, 10, 16, 20, 40]),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    affine=st.booleans(),
    channels_last=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_values_and_gradients_are_pytorchs(
    count, channels, height, width, affine, channels_last, seed
):
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = norms(channels, affine, generator)
    x = 3 * torch.randn(count, channels, height, width, generator=generator) + 2
    if height * width == 1:  # PyTorch refuses to normalise one pixel
        assert torch.equal(ours(x), ours.bias.view(-1, 1, 1).expand_as(x) if affine else 0 * x)
        return
    layout = torch.channels_last if channels_last else torch.contiguous_format
    mine = x.clone(memory_format=layout).requires_grad_()
    exact = x.double().requires_grad_()
    y, expected = ours(mine), theirs(exact)
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)
    weight = torch.randn(y.shape, generator=generator)
    (y * weight).sum().backward()
    (expected * weight.double()).sum().backward()
    # The gradient of x is a difference of larger numbers, of the size of 1 / deviation.
    size = float(x.std(dim=(2, 3), correction=0).clamp(min=1e-2).reciprocal().max())
    torch.testing.assert_close(mine.grad.double(), exact.grad, rtol=1e-3, atol=3e-5 * size)
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own.grad.double(), other.grad, rtol=1e-3, atol=1e-3)


@needs_compiler
def test_a_large_common_offset_costs_no_digits():
    """Where a variance as the difference of two moments would have none left."""
    generator = torch.Generator().manual_seed(0)
    ours, _ = norms(10, False, generator)
    noise = torch.randn(2, 10, 32, 32, generator=generator, dtype=torch.float64)
    x = (noise + 300).float()
    expected = nn.functional.instance_norm(x.double())
    assert float((ours(x).double() - expected).abs().max()) < 1e-3


@needs_compiler
def test_what_is_not_finite_stays_so():
    ours, _ = norms(4, True, torch.Generator())
    x = torch.zeros(2, 4, 3, 3)
    x[0, 1, 0, 0] = torch.nan
    y = ours(x)
    assert bool(y[0, 1].isnan().all())
    assert bool(y[1].isfinite().all())


@needs_compiler
def test_a_network_with_the_kernel_is_the_network():
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


@needs_compiler
def test_a_copy_gives_the_same_bits_with_any_number_of_threads():
    network = SlimResNet18(width=4, native=True)
    x = torch.randint(0, 256, (6, 3, 16, 16), dtype=torch.uint8)
    before = torch.get_num_threads()
    try:
        outputs = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            twin = copy.deepcopy(network)
            norm = twin.stem[1]
            outputs.append(norm(x.float().mean(dim=1, keepdim=True).repeat(1, 4, 1, 1)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*outputs)


@pytest.fixture
def without_compiler(monkeypatch):
    """A machine that has none."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    native._found.cache_clear()
    yield
    monkeypatch.undo()
    native._found.cache_clear()


@pytest.mark.usefixtures("without_compiler")
def test_without_a_compiler_one_line_is_said_and_pytorch_is_used():
    with pytest.warns(UserWarning, match=r"^no C\+\+ compiler was found: PyTorch's own") as told:
        network = build_network(NetworkConfig(width=2), (3, 16, 16), 0, native=True)
    assert len(told) == 1
    assert network(torch.zeros(1, 3, 16, 16)).shape == (1, 16)


@pytest.mark.slow
@needs_compiler
def test_what_was_compiled_is_found_by_the_next_process(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path))
    program = "from deepccg.networks.native import why_not; assert why_not() is None, why_not()"
    written = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True)
        (library,) = (tmp_path / "kernels").iterdir()  # and nothing half written
        written.append(library.stat().st_mtime_ns)
    assert written[0] == written[1]


def test_a_compiler_that_fails_is_told(tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    native._found.cache_clear()
    try:
        assert why_not() == "broken could not compile the kernels"
        assert list((tmp_path / "cache" / "kernels").iterdir()) == []
    finally:
        native._found.cache_clear()
