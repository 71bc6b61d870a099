"""Fourier features against the kernel they approximate, and whatever vectors there are."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from deepccg.core import InputError
from deepccg.networks import Fourier, NetworkConfig, build_network


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def vectors(count: int = 200, inputs: int = 6) -> torch.Tensor:
    x = torch.randn(count, inputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x * torch.logspace(-3, 3, inputs) + 10


def built(inputs: int = 6, features: int = 500, seed: int = 0) -> Fourier:
    network = build_network(NetworkConfig(kind="fourier", features=features), (inputs,), seed)
    assert isinstance(network, Fourier)
    return network


def fitted(x: torch.Tensor, features: int = 500, seed: int = 0) -> Fourier:
    network = built(math.prod(x.shape[1:]), features, seed)
    network.fit(x, generator())
    return network


def test_input_and_cosines_as_written():
    x = vectors()
    network = built(features=40).double()
    network.fit(x, generator())
    first = x[: network.first_examples].numpy()
    z = (x.numpy() - first.mean(axis=0)) / first.std(axis=0)
    w, b = network.frequency.numpy(), network.phase.numpy()
    expected = np.concatenate([z, np.sqrt(2) * np.cos(z @ w.T + b)], axis=1)
    assert network.dim == expected.shape[1] == 46
    np.testing.assert_allclose(network.features(x), expected, atol=1e-9)
    centred = expected - expected[: len(first)].mean(axis=0)
    length = (centred[: len(first)] ** 2).sum() / (len(first) - 1)
    np.testing.assert_allclose(network(x), centred * np.sqrt(20 / length), atol=1e-9)


def test_inner_products_are_the_gaussian_kernel():
    x = vectors(30)
    features = 200_000
    z = fitted(x, features).features(x).double()
    inputs, waves = z[:, :6], z[:, 6:]
    expected = torch.exp(-torch.cdist(inputs, inputs).square() / 6)
    torch.testing.assert_close(waves @ waves.T / features, expected, atol=0.02, rtol=0)


def test_frequencies_and_phases_have_their_distributions():
    network = built(inputs=50, features=400)
    frequency = (network.frequency * math.sqrt(50 / 2)).flatten().numpy()
    assert stats.kstest(frequency, "norm").pvalue > 1e-3
    assert stats.kstest(network.phase.numpy() / (2 * math.pi), "uniform").pvalue > 1e-3


def test_either_block_has_a_mean_square_of_one_per_feature():
    """So that a prior that treats all directions alike does."""
    x = torch.randn(4000, 20, generator=generator()) * 7 + 3
    z = fitted(x[:100], 2000).features(x)
    assert z[:, :20].square().mean() == pytest.approx(1, abs=0.1)
    assert z[:, 20:].square().mean() == pytest.approx(1, abs=0.02)


floats = st.floats(-(2.0**63), 2.0**63, width=32)


@given(
    first=hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.just(3)), elements=floats),
    later=hnp.arrays(np.float32, st.tuples(st.integers(0, 4), st.just(3)), elements=floats),
)
def test_features_and_their_squares_are_finite(first, later):
    network = fitted(torch.from_numpy(first), 10)
    for x in (first, later):
        z = network(torch.from_numpy(x))
        assert z.shape == (len(x), 13)
        assert bool(z.square().isfinite().all())
    assert bool((network.deviation > 0).all())


def test_constant_inputs_have_deviation_one():
    x = vectors()
    x[:, 2], x[:, 4] = 0.1, 0
    network = fitted(x)
    assert network.deviation[[2, 4]].tolist() == [1, 1]
    assert not network.features(x)[:, [2, 4]].abs().gt(1e-6).any()
    one = fitted(x[:1])
    assert one.deviation.tolist() == [1] * 6
    torch.testing.assert_close(one.features(x)[:, :6], (x - x[0]).float(), atol=1e-3, rtol=0)


def test_one_example_gives_embeddings_of_a_common_length_too():
    x = torch.randn(100, 20, generator=generator())
    z = fitted(x[:1])(x)
    assert not z[0].any()
    assert 10 < z.square().sum(dim=1)[1:].mean() < 80


def test_images_are_vectors_too():
    x = torch.randint(0, 256, (20, 1, 4, 5), dtype=torch.uint8, generator=generator())
    network = fitted(x)
    assert network.dim == 520
    assert torch.equal(network(x), fitted(x.flatten(1))(x.flatten(1)))
    assert network.features(x)[:, :20].double().std(dim=0, correction=0).sub(1).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_has_the_seed_and_not_what_is_drawn_from_it(dtype):
    x = vectors()
    network = fitted(x).to(dtype)
    state = network.state_dict()
    assert sorted(state) == ["centre", "deviation", "factor", "fitted", "mean", "seed"]
    other = built(seed=1).to(dtype)
    assert not torch.equal(other.frequency, network.frequency)
    other.load_state_dict(state)
    for twin in (other, copy.deepcopy(network), pickle.loads(pickle.dumps(network))):  # noqa: S301  (our own)
        assert torch.equal(twin(x.to(dtype)), network(x.to(dtype)))
        with pytest.raises(InputError, match="are fitted"):
            twin.fit(x, generator())
    inside = torch.nn.Sequential(built(seed=2).to(dtype))
    inside.load_state_dict({f"0.{key}": value for key, value in state.items()})
    assert torch.equal(inside(x.to(dtype)), network(x.to(dtype)))


def test_the_seed_of_the_network_decides():
    a, b, c = built(), built(), built(seed=1)
    assert torch.equal(a.frequency, b.frequency)
    assert not torch.equal(a.frequency, c.frequency)
    assert torch.equal(a(vectors().float()), b(vectors().float()))  # not fitted, but the same


def test_rows_do_not_depend_on_each_other():
    x = vectors().float()
    network = fitted(x)
    whole = network(x)
    for size in (1, 7, 100):
        parts = torch.cat([network(part) for part in x.split(size)])
        torch.testing.assert_close(parts, whole, atol=1e-4, rtol=0)


def test_what_cannot_be_used_is_refused():
    network = built()
    for call in (network, lambda x: network.fit(x, generator())):
        with pytest.raises(InputError, match=r"of 6 numbers, the inputs are \[5\]"):
            call(torch.zeros(2, 5))
    with pytest.raises(InputError, match="give at least one"):
        network.fit(torch.zeros(0, 6), generator())
    assert not network.fitted
    for features in (10**9, 2**62):
        with pytest.raises(InputError, match=r"too large.*network\.features"):
            built(features=features)
