"""Classifiers on features that are fitted to the first batch and stay as they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepccg import DeepCCGClassifier, InputError

METHODS = ["deepccg", "er", "icarl", "ccg"]


def stripes(seed: int = 0, count: int = 20, side: int = 12) -> tuple[Any, Any]:
    """Images of stripes in three directions; no pixel by itself tells them apart."""
    random = np.random.default_rng(seed)
    y = np.tile(["across", "diagonal", "down"], count)
    i, j = np.indices((side, side))
    along = {"across": i, "down": j, "diagonal": i + j}
    waves = [np.sin(along[label] * 1.6 + random.uniform(0, 6)) for label in y]
    x = np.stack(waves)[..., None] * 90 + 128 + random.normal(size=(len(y), side, side, 1)) * 15
    return x.clip(0, 255).astype(np.uint8), y


def rings(seed: int = 0, count: int = 60) -> tuple[Any, Any]:
    """Points within others, on scales that differ by a million."""
    random = np.random.default_rng(seed)
    y = np.tile([1, 2], count)
    direction = random.normal(size=(len(y), 2))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return direction * y[:, None] * [1e-3, 1e3] + [0, 5e3], y


CASES = {"patches": (stripes, {"filters": 20}), "fourier": (rings, {"features": 200})}


def built(encoder: str, method: str, **params: Any) -> DeepCCGClassifier:
    fields = {"encoder_params": CASES[encoder][1], "memory": 30, "random_state": 0, **params}
    return DeepCCGClassifier(method, encoder=encoder, **fields)


@pytest.mark.parametrize("encoder", CASES)
@pytest.mark.parametrize("method", METHODS)
def test_they_tell_apart_what_the_input_does_not(encoder: str, method: str) -> None:
    data = CASES[encoder][0]
    model = built(encoder, method, epochs=3).fit(*data())
    assert model.score(*data(1)) > 0.9


@pytest.mark.parametrize("encoder", CASES)
@pytest.mark.parametrize("method", METHODS)
def test_a_saved_classifier_goes_on_bit_for_bit(encoder: str, method: str, tmp_path: Path) -> None:
    x, y = CASES[encoder][0]()
    model = built(encoder, method)
    for rows in np.split(np.arange(len(x)), [7, 20, 31]):
        model.partial_fit(x[rows], y[rows])
        model.save(tmp_path / "model.safetensors")
        model, other = DeepCCGClassifier.load(tmp_path / "model.safetensors"), model
        assert np.array_equal(model.predict_proba(x), other.predict_proba(x))


def test_vectors_have_no_patches() -> None:
    x, y = rings()
    with pytest.raises(InputError, match="patches are of images"):
        built("patches", "deepccg").fit(x, y)
