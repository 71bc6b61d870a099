"""From a configuration to a network: seeds, shapes, and the extra linear map."""

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import nn

from deepccg.core import InputError
from deepccg.networks import MLP, Flatten, NetworkConfig, SlimResNet18, build_network

KINDS = [
    ("resnet18", (3, 16, 16)),
    ("mlp", (1, 8, 8)),
    ("identity", (5,)),
    ("fourier", (5,)),
    ("patches", (1, 8, 8)),
]


def example(shape, count: int = 3) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("kind", "shape"), KINDS)
@pytest.mark.parametrize("remap", [False, True])
def test_same_seed_same_weights_whatever_the_global_generator(kind, shape, remap):
    config = NetworkConfig(kind=kind, remap=remap)
    first = build_network(config, shape, seed=7).state_dict()
    torch.manual_seed(99)
    second = build_network(config, shape, seed=7).state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize(("kind", "shape"), KINDS[:2])
def test_other_seeds_give_other_weights(kind, shape):
    config = NetworkConfig(kind=kind)
    a, b = (build_network(config, shape, seed=seed)(example(shape)) for seed in (0, 1))
    assert not torch.allclose(a, b)


@pytest.mark.parametrize(("kind", "shape"), KINDS)
def test_global_generators_are_untouched(kind, shape):
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    build_network(NetworkConfig(kind=kind, remap=True), shape, seed=0)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])  # noqa: NPY002


@pytest.mark.parametrize(("kind", "shape"), KINDS)
def test_remap_starts_as_the_identity(kind, shape):
    plain = build_network(NetworkConfig(kind=kind), shape, seed=3)
    mapped = build_network(NetworkConfig(kind=kind, remap=True), shape, seed=3)
    x = example(shape)
    with torch.no_grad():
        torch.testing.assert_close(mapped(x), plain(x), rtol=1e-6, atol=1e-6)
    assert mapped.dim == plain.dim
    added = sum(p.numel() for p in mapped.parameters()) - sum(p.numel() for p in plain.parameters())
    assert added == plain.dim**2
    assert mapped.map.weight.requires_grad


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((3, 32, 32), SlimResNet18), ((1, 16, 20), SlimResNet18), ((1, 8, 8), MLP), ((64,), MLP)],
)
def test_auto_takes_what_fits_the_data(shape, kind):
    assert isinstance(build_network(NetworkConfig(), shape, seed=0), kind)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 15, 40), (64,)])
def test_a_resnet_for_too_small_images_is_refused(shape):
    with pytest.raises(InputError, match=r"at least 16 pixels.*network\.kind=mlp"):
        build_network(NetworkConfig(kind="resnet18"), shape, seed=0)


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    layers=st.lists(st.integers(1, 9), min_size=1, max_size=3),
)
def test_mlp_is_blocks_of_linear_layer_norm_relu(shape, layers):
    network = build_network(NetworkConfig(kind="mlp", layers=tuple(layers)), shape, seed=0)
    assert network.dim == layers[-1]
    x = example(shape)
    z = x.numpy().reshape(3, math.prod(shape)).astype(np.float64)
    linear = [m for m in network.modules() if isinstance(m, nn.Linear)]
    assert [m.out_features for m in linear] == layers
    for layer in linear:
        z = z @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        deviation = np.sqrt(z.var(axis=1, keepdims=True) + 1e-5)
        z = np.maximum((z - z.mean(axis=1, keepdims=True)) / deviation, 0)
    np.testing.assert_allclose(network.double()(x.double()).detach(), z, atol=1e-6)


def test_identity_gives_the_input_back():
    x = example((2, 3))
    network = build_network(NetworkConfig(kind="identity"), (2, 3), seed=0)
    assert isinstance(network, Flatten)
    assert network.dim == 6
    assert torch.equal(network(x), x.reshape(3, 6))


@pytest.mark.parametrize("fields", [{"width": 0}, {"layers": ()}, {"kind": "vgg"}, {"depth": 3}])
def test_impossible_networks_are_refused(fields):
    with pytest.raises(ValidationError):
        NetworkConfig(**fields)


@pytest.mark.parametrize("kind", ["auto", "resnet18", "mlp", "identity"])
def test_fields_of_fixed_features_are_not_written_for_other_networks(kind):
    """So that runs keep the names they had before there were such features."""
    written = NetworkConfig(kind=kind, filters=7, mirror=True, features=8).model_dump(mode="json")
    assert list(written) == ["kind", "width", "affine", "layers", "remap"]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("patches", {"filters": 7, "patch_side": 5, "grid": 3, "mirror": True}),
        ("fourier", {"features": 9}),
    ],
)
def test_fields_of_fixed_features_are_written_for_their_own_kind(kind, fields):
    config = NetworkConfig(kind=kind, **fields)
    written = config.model_dump(mode="json")
    assert written.items() >= fields.items()
    assert NetworkConfig(**written) == config
