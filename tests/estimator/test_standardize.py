"""Inputs are standardised by all that came, whatever their scale and order, and stored raw."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from deepccg import DeepCCGClassifier, InputError
from deepccg.networks import MLP, Standardized

OLD = Path(__file__).parent / "data" / "before_standardize.state"
Array = npt.NDArray[np.float64]


def standardized(features: int = 3) -> Standardized:
    return Standardized(MLP(features, (4,)).double(), features, torch.float64)


def statistics(model: DeepCCGClassifier) -> tuple[Array, Array]:
    network = model.learner_.network
    assert isinstance(network, Standardized)
    return network.mean.numpy(), (network.scatter / network.count).sqrt().numpy()


def in_class_order(model: DeepCCGClassifier, x: Array, y: Any, size: int = 10) -> DeepCCGClassifier:
    turn = np.argsort(y, kind="stable")
    for begin in range(0, len(x), size):
        rows = turn[begin : begin + size]
        model.partial_fit(x[rows], y[rows])
    return model


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    centre=st.sampled_from([0.0, 1e4, -1e8]),
    seed=st.integers(0, 9),
)
def test_parts_of_any_size_have_the_statistics_of_the_whole(
    sizes: list[int], centre: float, seed: int
) -> None:
    x = np.random.default_rng(seed).normal(centre, 2.0, size=(sum(sizes), 3))
    network = standardized()
    for part in torch.from_numpy(x).split(sizes):
        network.observe(part)
    scaler = StandardScaler().fit(x)
    assert int(network.count) == scaler.n_samples_seen_
    np.testing.assert_allclose(network.mean.numpy(), scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(
        network.scatter.numpy() / len(x), x.var(axis=0), rtol=1e-5, atol=1e-7
    )


def test_the_network_sees_what_a_scaler_makes() -> None:
    x = np.random.default_rng(0).uniform([-1, 900, 0], [1, 1100, 1e-3], size=(50, 3))
    network = standardized()
    network.observe(torch.from_numpy(x))
    scaled = torch.from_numpy(StandardScaler().fit_transform(x))  # all within three deviations
    with torch.no_grad():
        torch.testing.assert_close(network(torch.from_numpy(x)), network.network(scaled))


def test_a_constant_feature_and_a_far_value_stay_small() -> None:
    seen: list[torch.Tensor] = []
    network = standardized()
    network.network.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    network.observe(torch.tensor([[0.0, 1e4, 1.0], [0.0, 1e4, 3.0]], dtype=torch.float64))
    network(torch.tensor([[5.0, 1e4, 1e9]], dtype=torch.float64))
    assert seen[0][0, 1] == 0
    assert seen[0].abs().max() < 70
    assert torch.isfinite(seen[0]).all()


def test_scale_does_not_matter() -> None:
    x, y = load_wine(return_X_y=True)
    scale = 10.0 ** np.arange(-6, 7)
    raw = in_class_order(DeepCCGClassifier(random_state=0), x, y)
    scaled = in_class_order(DeepCCGClassifier(random_state=0), x * scale + 3 * scale, y)
    np.testing.assert_allclose(raw.predict_proba(x), scaled.predict_proba((x + 3) * scale), 1e-5)
    assert raw.score(x, y) > 0.95
    off = in_class_order(DeepCCGClassifier(random_state=0, standardize=False), x, y)
    assert off.score(x, y) < 0.8


def test_rows_are_stored_as_they_came_and_all_count_for_the_scale() -> None:
    x, y = load_wine(return_X_y=True)
    model = in_class_order(DeepCCGClassifier(memory=30, random_state=0), x, y)
    known = set(map(tuple, x.tolist()))
    assert all(tuple(row) in known for row in model.memory_["x"].tolist())
    mean, deviation = statistics(model)
    np.testing.assert_allclose(mean, x.mean(axis=0))
    np.testing.assert_allclose(deviation, x.std(axis=0))
    fitted = DeepCCGClassifier(epochs=3, random_state=0).fit(x, y)
    np.testing.assert_allclose(statistics(fitted)[1], x.std(axis=0))


@pytest.mark.parametrize("encoder", ["identity", "fourier", torch.nn.Linear(3, 2).double()])
def test_other_encoders_take_inputs_as_they_are(clouds: Any, encoder: Any) -> None:
    x, y = clouds(("cow", "dog"), 5)
    on, off = (
        DeepCCGClassifier(encoder=encoder, standardize=way, random_state=0).partial_fit(x, y)
        for way in (True, False)
    )
    np.testing.assert_array_equal(on.predict_proba(x), off.predict_proba(x))


def test_defaults_for_vectors_go_with_a_sampled_posterior() -> None:
    x, y = np.eye(6), [0, 1] * 3
    sampled = DeepCCGClassifier(method_params={"posterior": "sampled"}, random_state=0)
    assert sampled.partial_fit(x, y).learner_.config.replay_sampling == "balanced"
    plain = DeepCCGClassifier(random_state=0).partial_fit(x, y)
    config = plain.learner_.config
    assert (config.replay, config.replay_sampling, config.repeats) == (60, "balanced", 2)
    module = DeepCCGClassifier(encoder=torch.nn.Linear(6, 2).double(), random_state=0)
    assert module.partial_fit(x, y).learner_.config.replay == 10
    plain.set_params(method_params={"replay": 60}).partial_fit(x, y)  # as it was: goes on
    with pytest.raises(InputError, match="method_params"):
        plain.set_params(method_params={"replay": 30}).partial_fit(x, y)


def test_images_stay_as_they_are() -> None:
    x = np.random.default_rng(0).normal(size=(6, 4, 4, 1)).astype(np.float32)
    model = DeepCCGClassifier(encoder="mlp", random_state=0).partial_fit(x, [0, 1] * 3)
    assert not isinstance(model.learner_.network, Standardized)


def test_files_and_copies_go_on_bit_for_bit(clouds: Any, tmp_path: Path) -> None:
    x, y = clouds(("cow", "dog"), 5)
    model = DeepCCGClassifier(random_state=0).partial_fit(x * [1, 50, 1e4], y)
    model.save(tmp_path / "model")
    others = [
        DeepCCGClassifier.load(tmp_path / "model"),
        pickle.loads(pickle.dumps(model)),  # noqa: S301  (our own bytes)
        copy.deepcopy(model),
    ]
    more = clouds(("ant", "dog"), 8, seed=1)
    wanted = model.partial_fit(*more).predict_proba(x)
    for other in others:
        np.testing.assert_array_equal(other.partial_fit(*more).predict_proba(x), wanted)


def test_a_file_from_before_goes_on_without(recwarn: pytest.WarningsRecorder) -> None:
    model = DeepCCGClassifier.load(OLD)
    assert not recwarn
    assert model.standardize is False
    corners = 3 * np.eye(3)
    before = [0.496556587824, 0.310879268807, 0.192564143369]
    np.testing.assert_allclose(model.predict_proba(corners)[0], before, rtol=1e-6)
    x = np.random.default_rng(0).normal(size=(12, 3)) + 3 * np.eye(3)[[0, 1, 2] * 4]
    model.partial_fit(x[:5], ["ant", "cow", "dog", "ant", "cow"])
    after = [0.116414622186, 0.211695514275, 0.671889863539]  # by the version that wrote it
    np.testing.assert_allclose(model.predict_proba(corners)[2], after, rtol=1e-6)


def test_a_call_that_fails_leaves_the_scale(clouds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clouds(("cow", "dog"), 20)
    model = DeepCCGClassifier(random_state=0).partial_fit(x, y)
    wanted, scale = model.predict_proba(x), statistics(model)
    with pytest.raises(InputError, match="feature 1 has values too large"):
        model.partial_fit(x * [1, 1e200, 1], y)
    learn, calls = model.learner_.learn, iter([False, True])

    def fail_at_last(batch: Any) -> Any:
        if next(calls):
            raise KeyboardInterrupt
        return learn(batch)

    monkeypatch.setattr(model.learner_, "learn", fail_at_last)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(10 * x, y)
    np.testing.assert_array_equal(model.predict_proba(x), wanted)
    np.testing.assert_array_equal(statistics(model), scale)


def test_forgetting_keeps_the_scale_and_no_example(clouds: Any) -> None:
    x, y = clouds(("cow", "dog", "ant"), 9)
    model = DeepCCGClassifier(random_state=0).partial_fit(x, y)
    scale = statistics(model)
    model.forget(cls="ant")
    np.testing.assert_array_equal(statistics(model), scale)
    gone = set(map(tuple, x[y == "ant"].tolist()))
    assert not gone & set(map(tuple, model.memory_["x"].tolist()))


def test_reports_see_the_scale() -> None:
    """A change of units changes neither scores, neighbours nor what is asked for in a file."""
    x, y = load_wine(return_X_y=True)
    units = 10.0 ** np.arange(-6, 7)
    one = in_class_order(DeepCCGClassifier(random_state=0), x, y)
    two = in_class_order(DeepCCGClassifier(random_state=0), x * units, y)
    np.testing.assert_allclose(one.ood_score(x), two.ood_score(x * units), rtol=1e-4)
    found, same = one.explain(x[:20]), two.explain(x[:20] * units)
    np.testing.assert_allclose(found["distance"], same["distance"], rtol=1e-4)
    np.testing.assert_array_equal(found["neighbour"], same["neighbour"])


@pytest.mark.slow
def test_exported_files_standardise(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    x, y = load_wine(return_X_y=True)
    model = in_class_order(DeepCCGClassifier(random_state=0), x, y)
    model.export(tmp_path / "wine.onnx")
    found = runtime.InferenceSession(tmp_path / "wine.onnx").run(["probabilities"], {"x": x})[0]
    np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-6)
