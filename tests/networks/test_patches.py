"""Patch features against a direct formula in NumPy, mirror images, and odd images."""

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import InputError
from deepccg.networks import NetworkConfig, Patches, build_network, unfitted_features
from deepccg.networks.patches import SAMPLED

SHAPE = (3, 11, 12)


def images(count: int, shape: Any = SHAPE, seed: int = 0) -> torch.Tensor:
    """Bytes with structure: smooth in space, alike in the channels."""
    random = np.random.default_rng(seed)
    noise = random.normal(size=(count, *shape)).cumsum(axis=2).cumsum(axis=3)
    noise += noise.mean(axis=1, keepdims=True)
    low, high = (f(axis=(1, 2, 3), keepdims=True) for f in (noise.min, noise.max))
    return torch.from_numpy(((noise - low) / (high - low + 1e-9) * 255).astype(np.uint8))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fitted(x: torch.Tensor, *, seed: int = 0, **fields: Any) -> Patches:
    network = Patches(
        x.shape[1:], **{"filters": 7, "side": 4, "threshold": 0.25, "mirror": False, **fields}
    )
    network.fit(x, generator(seed))
    return network


def standard(x: torch.Tensor) -> np.ndarray:
    x = x.numpy().astype(np.float64) / (127.5 if x.dtype == torch.uint8 else 1)
    return x - x.mean(axis=(1, 2, 3), keepdims=True)


def all_patches(x: np.ndarray, side: int) -> np.ndarray:
    """``[N, h, w, P]``, one after the other."""
    count, _, height, width = x.shape
    down, across = height - side + 1, width - side + 1
    return np.stack(
        [
            [
                [each[:, i : i + side, j : j + side].ravel() for j in range(across)]
                for i in range(down)
            ]
            for each in x
        ]
    ).reshape(count, down, across, -1)


def normalised(u: np.ndarray) -> np.ndarray:
    return (u - u.mean(-1, keepdims=True)) / np.sqrt(u.var(-1, keepdims=True) + 0.1)


def direct(
    first: torch.Tensor,
    x: torch.Tensor,
    *,
    filters: int = 7,
    side: int = 4,
    grid: int = 2,
    seed: int = 0,
    without: str = "",
) -> np.ndarray:
    """The features of ``x`` patch by patch, each step as it is written; one may be left out."""
    scale = np.sqrt((standard(first) ** 2).mean())
    patches = all_patches(standard(first) / scale, side).reshape(-1, first.shape[1] * side**2)
    patches = patches[torch.randperm(len(patches), generator=generator(seed))[:SAMPLED]]
    n = normalised(patches)
    mean = n.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(n.T, bias=True))
    whiten = vectors @ np.diag(1 / np.sqrt(values + 0.1)) @ vectors.T
    if without == "whitening":
        whiten = np.eye(len(mean))
    words = ((n - mean) @ whiten)[patches.var(axis=1) > 0.01][:filters]
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    u = all_patches(standard(x) / scale, side)
    u = u if without == "normalisation" else normalised(u)
    a = (u - (0 if without == "mean" else mean)) @ whiten @ words.T
    both = np.stack([np.maximum(a - 0.25, 0), np.maximum(-a - 0.25, 0)], axis=1)
    down, across = u.shape[1:3]
    cells = [
        both[:, :, i * down // grid : math.ceil((i + 1) * down / grid)][
            :, :, :, j * across // grid : math.ceil((j + 1) * across / grid)
        ].mean(axis=(2, 3))
        for i in range(grid)
        for j in range(grid)
    ]
    pooled = np.stack(cells, axis=-1)  # [B, sign, filters, grid^2]
    return (pooled if without == "root" else np.sqrt(pooled)).reshape(len(x), -1)


@given(
    channels=st.integers(1, 3),
    height=st.integers(7, 13),
    width=st.integers(7, 13),
    side=st.integers(2, 5),
    grid=st.integers(1, 3),
    as_bytes=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_is_the_direct_formula(channels, height, width, side, grid, as_bytes, seed):
    x = images(6, (channels, height, width), seed)
    if not as_bytes:
        x = x.double() * 3 - 7
    network = fitted(x, filters=5, side=side, grid=grid, seed=seed)
    expected = direct(x, x, filters=5, side=side, grid=grid, seed=seed)
    assert network.dim == expected.shape[1] == 2 * 5 * grid**2
    found = network.features(x)
    assert found.dtype == torch.float32
    # A root magnifies what rounding leaves of a mean near 0.
    np.testing.assert_allclose(found.square(), expected**2, atol=2e-5)
    exact = Patches(x.shape[1:], 5, side, grid, 0.25, mirror=False).double()
    exact.fit(x, generator(seed))
    np.testing.assert_allclose(exact.features(x).square(), expected**2, atol=1e-12)


@pytest.mark.parametrize("step", ["whitening", "mean", "normalisation", "root"])
def test_no_step_can_be_left_out(step):
    x = images(20)
    found = fitted(x).features(x).numpy()
    np.testing.assert_allclose(found, direct(x, x), atol=1e-3)
    assert np.abs(found - direct(x, x, without=step)).max() > 0.05


@given(
    channels=st.integers(1, 3),
    height=st.integers(6, 14),
    width=st.sampled_from([6, 7, 12, 13, 61, 84, 85]),
    grid=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_an_image_and_its_mirror_image_have_the_same_features(channels, height, width, grid, seed):
    height += 60 * (width > 60)  # both sides are shrunk
    x = images(5, (channels, height, width), seed)
    network = fitted(x[:3], mirror=True, grid=grid, seed=seed).double()
    assert network.dim == 2 * 7 * grid**2
    torch.testing.assert_close(network(x), network(x.flip(3)), atol=1e-5, rtol=0)
    plain = fitted(x[:3], grid=grid, seed=seed)
    assert (plain(x) - plain(x.flip(3))).abs().max() > 1e-3


@pytest.mark.parametrize("grid", [1, 2, 3])
def test_mirrored_features_are_the_mean_of_both_images_features(grid):
    x = images(9)
    mirrored = fitted(x, mirror=True, grid=grid)
    plain = Patches(SHAPE, 7, 4, grid, 0.25, mirror=False)
    plain.load_state_dict(mirrored.state_dict())
    both = (plain.features(x).square() + plain.features(x.flip(3)).square()) / 2
    torch.testing.assert_close(mirrored.features(x).square(), both, atol=1e-6, rtol=1e-5)


def test_large_images_are_halved():
    x = images(8, (3, 84, 80))
    halved = torch.nn.functional.avg_pool2d(x.double() / 127.5 - 1, 2)
    large, small = fitted(x, side=6), fitted(halved, side=6)
    torch.testing.assert_close(large(x), small(halved), atol=5e-3, rtol=0)
    assert (large.weight - small.weight).abs().max() < 1e-6


def test_every_chunk_gives_the_same_bits():
    x = images(90, (3, 20, 20))
    for mirror in (False, True):
        network = fitted(x, filters=100, mirror=mirror)
        assert len(x) > 2 * network.chunk
        whole = network(x)
        for size in (1, 3, 10, 49):
            assert torch.equal(torch.cat([network(part) for part in x.split(size)]), whole)


ODD = {
    "black": torch.zeros(4, *SHAPE, dtype=torch.uint8),
    "white": torch.full((4, *SHAPE), 255, dtype=torch.uint8),
    "one image": images(1),
    "equal images": images(1).expand(5, *SHAPE),
    "one bright column": torch.zeros(4, *SHAPE).index_fill_(3, torch.tensor([3]), 1e18),
    "largest floats": torch.tensor([1.8e19, -1e19]).repeat(2 * math.prod(SHAPE)).view(4, *SHAPE),
    "smallest floats": 1e-38 * torch.rand(4, *SHAPE, generator=generator()),
    "far from zero": 1e6 + torch.rand(4, *SHAPE, generator=generator()),
}


@pytest.mark.parametrize("later", ODD)
@pytest.mark.parametrize("first", ODD)
@pytest.mark.parametrize("mirror", [False, True])
def test_features_are_finite(first, later, mirror):
    network = fitted(ODD[first], mirror=mirror)
    for x in (ODD[later], images(3), images(3).float()):
        z = network(x)
        assert z.shape == (len(x), network.dim)
        assert bool(z.isfinite().all())
        assert bool(z.square().sum(dim=1).isfinite().all())


def test_embeddings_of_the_first_images_are_centred_and_of_a_common_length():
    for filters in (3, 50):
        x = images(60)
        z = fitted(x, filters=filters).double()(x)
        assert z.mean(dim=0).abs().max() < 1e-5
        assert z.square().sum(dim=1).mean() == pytest.approx(20 * 59 / 60, rel=1e-4)


def test_blank_first_images_still_give_features_that_tell_images_apart():
    x = images(10)
    z = fitted(ODD["black"]).features(x)
    assert torch.cdist(z, z).add(torch.eye(10)).min() > 0.05


def test_blank_patches_are_no_filters():
    x = images(30, (1, 20, 20))
    x[:, :, :16] = 0  # most patches are blank, and would be one and the same filter
    weight = fitted(x, filters=20).weight.flatten(1)
    alike = torch.nn.functional.normalize(weight) @ torch.nn.functional.normalize(weight).T
    assert alike.fill_diagonal_(0).max() < 0.999


def test_features_do_not_depend_on_brightness_and_little_on_contrast():
    x = images(6).float() / 4
    network = fitted(x)
    z = network.features(x)
    torch.testing.assert_close(network.features(x + 90), z, atol=2e-3, rtol=0)
    assert (network.features(2 * x) - z).abs().max() < 0.5 * z.max()


def test_the_generator_and_the_images_decide():
    x = images(12)
    first = fitted(x)
    torch.manual_seed(99)
    again = fitted(x)
    assert all(torch.equal(a, b) for a, b in zip(first.buffers(), again.buffers(), strict=True))
    assert not torch.equal(first.weight, fitted(x, seed=1).weight)
    assert not torch.equal(first.weight, fitted(images(12, seed=1)).weight)


def test_only_the_first_images_are_looked_at():
    x = images(Patches.first_examples + 20)
    other = torch.cat([x[: Patches.first_examples], x[:5] // 2])
    assert torch.equal(fitted(x).weight, fitted(other).weight)


def test_copies_and_states_give_the_same_bits():
    x = images(12)
    network = fitted(x, mirror=True)
    fresh = Patches(SHAPE, 7, 4, threshold=0.25, mirror=True)
    kept = fresh.state_dict()
    state = copy.deepcopy(network.state_dict())
    assert {k: v.shape for k, v in kept.items()} == {k: v.shape for k, v in state.items()}
    assert sum(v.numel() for v in state.values()) == 7 * 3 * 4 * 4 + 7 + network.dim + 3
    fresh.load_state_dict(state)
    twins = [fresh, copy.deepcopy(network), pickle.loads(pickle.dumps(network))]  # noqa: S301  (our own)
    for twin in twins:
        assert torch.equal(twin(x), network(x))
        with pytest.raises(InputError, match="are fitted"):
            twin.fit(x, generator())
    assert not list(network.parameters())


def test_double_precision_differs_in_rounding_only():
    x = images(12)
    network = fitted(x)
    double = copy.deepcopy(network).to(torch.float64)
    z = double(x)
    assert z.dtype == torch.float64
    torch.testing.assert_close(network(x).double(), z, atol=1e-2, rtol=0)


def test_before_fitting_there_are_features_of_the_right_shape():
    network = Patches(SHAPE, 7, 4, threshold=0.25, mirror=False)
    z = network(images(3))
    assert z.shape == (3, network.dim)
    assert bool(z.isfinite().all())
    assert list(unfitted_features(torch.nn.Sequential(network))) == [network]
    network.fit(images(3), generator())
    assert list(unfitted_features(network)) == []


@pytest.mark.parametrize(
    ("fields", "shape", "says"),
    [
        ({}, (3, 5, 40), r"\[3, 5, 40\] are too small.*lower network\.patch_side.*network\.kind"),
        ({"grid": 4}, (1, 8, 8), r"too small for patches of 6 x 6 pixels in 4 x 4 cells"),
        ({}, (64,), r"patches are of images.*network\.kind=fourier"),
        ({"patch_side": 24}, (9, 30, 30), r"9 x 24 x 24 numbers are too large"),
        ({"filters": 10**7}, (3, 32, 32), r"of 1,17\d,\d{3},\d{3} numbers.*network\.filters"),
    ],
)
def test_impossible_patches_are_refused(fields, shape, says):
    with pytest.raises(InputError, match=says) as caught:
        build_network(NetworkConfig(kind="patches", **fields), shape, seed=0)
    assert "\n" not in str(caught.value)


def test_wrong_inputs_are_refused_and_change_nothing():
    network = Patches(SHAPE, 7, 4, threshold=0.25, mirror=False)
    for wrong in (images(2, (1, 11, 12)), images(2, (3, 12, 11)), torch.zeros(2, 5)):
        for call in (network, lambda x: network.fit(x, generator())):
            with pytest.raises(InputError, match=r"of images \[3, 11, 12\], the inputs are"):
                call(wrong)
    with pytest.raises(InputError, match="give at least one"):
        network.fit(images(0), generator())
    assert not network.fitted
    assert not network.weight.any()


def test_the_configuration_decides():
    config = NetworkConfig(kind="patches", filters=9, patch_side=5, grid=3, mirror=True)
    network = build_network(config, (3, 16, 16), seed=0)
    assert isinstance(network, Patches)
    assert (network.dim, network.mirror) == (2 * 9 * 9, True)
    assert network.weight.shape == (9, 3, 5, 5)
    assert build_network(NetworkConfig(kind="patches"), (3, 16, 16), seed=0).dim == 800
