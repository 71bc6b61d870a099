"""The mean that memory should keep, by brute force."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deepccg.gaussian import target_weights


@st.composite
def stored_and_new(draw, min_stored=0, min_new=0):
    dim = draw(st.integers(1, 4))
    sizes = draw(st.integers(min_stored, 6)), draw(st.integers(min_new, 6))
    parts = [draw(arrays(np.float64, (n, dim), elements=st.floats(-9, 9))) for n in sizes]
    return parts[0], parts[1]


def target(stored, new, seen=None):
    """With two entries of padding in front, which must not count."""
    real = np.repeat([False, True], [2, len(stored) + len(new)])
    kept = real.copy()
    kept[2 + len(stored) :] = False
    before = None if seen is None else np.array([seen])
    weight = target_weights(real[None], kept[None], before)[0]
    assert not weight[:2].any()
    return weight[2:] @ np.concatenate([stored, new])


@given(stored_and_new(min_new=1))
def test_as_printed_it_is_the_mean_of_memory_and_batch(parts):
    stored, new = parts
    expected = sum([*stored, *new]) / (len(stored) + len(new))
    np.testing.assert_allclose(target(stored, new), expected, atol=1e-12)


@given(stored_and_new(min_stored=1), st.integers(1, 200))
def test_with_evidence_the_memory_stands_for_everything_seen(parts, seen):
    stored, new = parts
    stand_in = sum(stored) / len(stored)
    expected = np.mean([stand_in] * seen + list(new), axis=0)
    np.testing.assert_allclose(target(stored, new, seen), expected, atol=1e-11)


@given(stored_and_new(min_stored=1, min_new=1))
def test_both_agree_while_memory_holds_everything_seen(parts):
    stored, new = parts
    everything = np.concatenate([stored, new]).mean(axis=0)
    np.testing.assert_allclose(target(stored, new, len(stored)), everything, atol=1e-12)
    np.testing.assert_allclose(target(stored, new), everything, atol=1e-12)


@given(stored_and_new(min_new=1), st.integers(0, 200))
def test_without_memory_only_the_batch_counts(parts, seen):
    _, new = parts
    np.testing.assert_allclose(target(new[:0], new, seen), new.mean(axis=0), atol=1e-12)
