"""Domains: appearances against direct formulas, and streams that show them."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepccg.core import InputError, SecondRead
from deepccg.streams import Cursor, JointStream, Split, domain, draw_domains, make_test_set
from deepccg.streams.domains import rotated_pixels


def images(count: int, shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def split_of(per_class: int, classes: int, shape: tuple[int, ...] = (2, 6, 6)) -> Split:
    """Every example is different; vectors if ``shape`` is of vectors."""
    generator, n = np.random.default_rng(1), per_class * classes
    if len(shape) == 1:
        x = generator.standard_normal((n, *shape)).astype(np.float32)
    else:
        x = generator.integers(0, 256, (n, *shape), dtype=np.uint8)
    return Split(x, generator.permutation(np.repeat(np.arange(classes), per_class)))


def turned(image: np.ndarray, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Turn one channel left about its middle, pixel by pixel, with complex numbers.

    Also says which pixels are certain: rounding a half may go either way.
    """
    height, width = image.shape
    result, certain = np.zeros_like(image), np.ones(image.shape, dtype=bool)
    for i in range(height):
        for j in range(width):
            # x to the right, y upwards; where the pixel was before the turn
            place = complex(j - (width - 1) / 2, (height - 1) / 2 - i)
            place *= complex(math.cos(math.radians(degrees)), -math.sin(math.radians(degrees)))
            row, column = (height - 1) / 2 - place.imag, (width - 1) / 2 + place.real
            certain[i, j] = all(abs(at % 1 - 0.5) > 1e-6 for at in (row, column))
            row, column = round(row), round(column)
            if 0 <= row < height and 0 <= column < width:
                result[i, j] = image[row, column]
    return result, certain


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 9), st.integers(2, 9), st.integers(1, 3), st.floats(1, 359))
def test_images_are_turned_as_a_direct_formula_says(height, width, channels, degrees) -> None:
    x = images(2, (channels, height, width))
    source = rotated_pixels((height, width), degrees)
    flat = x.reshape(2, channels, -1)
    shown = np.where(source < 0, 0, flat[..., source]).reshape(x.shape)
    for n in range(2):
        for c in range(channels):
            expected, certain = turned(x[n, c], degrees)
            assert np.array_equal(shown[n, c][certain], expected[certain])


def test_a_quarter_is_numpys_quarter_and_not_the_other_one() -> None:
    x = images(3, (2, 6, 6))
    looks = draw_domains("rotation", 2, (2, 6, 6), seed=0)
    assert [look.name for look in looks] == ["as it is", "turned by 90 degrees"]
    assert np.array_equal(looks[0](x), x)
    assert np.array_equal(looks[1](x), np.rot90(x, axes=(2, 3)))
    assert not np.array_equal(looks[1](x), np.rot90(x, k=-1, axes=(2, 3)))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.integers(2, 8), st.integers(0, 1000))
def test_rotations_are_all_different_and_in_the_seeds_order(size, count, seed) -> None:
    names = [look.name for look in draw_domains("rotation", count, (1, size, size), seed)]
    expected = {f"turned by {180 * k / count:g} degrees" for k in range(1, count)}
    assert names[0] == "as it is"
    assert set(names[1:]) == expected
    assert len(names) == count


def test_the_order_of_rotations_depends_on_the_seed() -> None:
    def names(seed: int) -> list[str]:
        return [look.name for look in draw_domains("rotation", 6, (1, 4, 4), seed)]

    assert names(0) == names(0)
    assert len({tuple(names(seed)) for seed in range(5)}) > 1


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 9), st.integers(2, 7), st.integers(0, 1000))
def test_vectors_are_turned_by_the_angle_of_their_domain(features, count, seed) -> None:
    x = np.random.default_rng(seed).standard_normal((40, features))
    for look in draw_domains("rotation", count, (features,), seed)[1:]:
        shown = look(x)
        assert shown.dtype == x.dtype
        # The matrix of the change, from unit vectors: a rotation, of every pair by the angle.
        matrix = look(np.eye(features)).T
        assert np.allclose(shown, x @ matrix.T)
        assert np.allclose(matrix @ matrix.T, np.eye(features))
        assert np.linalg.det(matrix) == pytest.approx(1)
        angle = math.radians(float(look.name.split()[2]))
        paired = 2 * math.cos(angle) * (features // 2)
        assert np.trace(matrix) == pytest.approx(paired + features % 2, abs=1e-3)


@pytest.mark.parametrize("shape", [(3, 4, 5), (7,)])
def test_pixels_of_all_channels_and_features_change_places(shape: tuple[int, ...]) -> None:
    x = split_of(5, 2, shape).x
    first, second, third = draw_domains("permutation", 3, shape, seed=2)
    assert np.array_equal(first(x), x)
    numbers = np.arange(math.prod(shape[-2:]))
    places = []
    for look in (second, third):
        ramp = np.broadcast_to(numbers.reshape(shape[-2:]), (1, *shape)).astype(x.dtype)
        order = look(ramp).reshape(-1, len(numbers))[0].astype(int)
        assert sorted(order) == numbers.tolist()
        flat = x.reshape(*x.shape[: -len(shape[-2:])], -1)
        assert np.array_equal(look(x).reshape(flat.shape), flat[..., order])
        places.append(order.tolist())
    assert places[0] != places[1] != numbers.tolist()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(3, 15),
    st.integers(1, 4),
    st.integers(2, 5),
    st.sampled_from(["rotation", "permutation"]),
    st.sampled_from([(1, 4, 4), (6,)]),
    st.integers(0, 2**32),
)
def test_each_example_comes_once_as_its_domain_shows_it(
    per_class, classes, count, appearance, shape, seed
) -> None:
    if per_class * classes < count * 3:
        return  # a domain may be empty
    split = split_of(per_class, classes, shape)
    fields = {"appearance": appearance, "domains": count, "batch_size": 4, "seed": seed}
    stream = domain(split, **fields)
    looks = draw_domains(appearance, count, shape, seed)
    assert [look.name for look in stream.domains] == [look.name for look in looks]
    assert {frozenset(task.classes) for task in stream.tasks} == {frozenset(range(classes))}
    came: Counter[tuple[int, int]] = Counter()
    for step, batch in enumerate(Cursor(stream)):
        rows, place = stream.indices(step), stream.task_of(step).id
        assert batch.task == stream.tasks[place]
        assert torch.equal(batch.x, torch.from_numpy(looks[place](split.x[rows])))
        assert batch.x.dtype == torch.from_numpy(split.x[:0]).dtype
        came.update((int(c), place) for c in split.y[rows])
    assert came.total() == stream.examples == per_class * classes
    for c in range(classes):
        dealt = [came[c, place] for place in range(count)]
        assert max(dealt) - min(dealt) <= 1
    cursor = Cursor(stream, 1)
    with pytest.raises(SecondRead):
        cursor.read(0)


def test_the_data_stay_as_they_are_and_appearances_are_in_the_fingerprint() -> None:
    split = split_of(20, 3)
    before = split.x.copy()
    prints = {
        domain(split, seed=0, appearance=appearance, domains=count).fingerprint()
        for appearance in ("rotation", "permutation")
        for count in (2, 3)
    }
    assert len(prints) == 4
    assert np.array_equal(split.x, before)


def test_pooled_examples_keep_their_appearance_and_domain() -> None:
    split = split_of(12, 3)
    stream = domain(split, domains=3, batch_size=4)
    shown = {
        int(row): (stream[step].x[k], stream.task_of(step))
        for step in range(len(stream))
        for k, row in enumerate(stream.indices(step))
    }
    joint = JointStream(stream, passes=2, batch_size=7)
    assert joint.domains == stream.domains
    for step in range(len(joint)):
        batch = joint[step]
        for x, task, row in zip(batch.x, batch.tasks, joint.indices(step), strict=True):
            assert torch.equal(x, shown[int(row)][0])
            assert task == shown[int(row)][1]


def test_every_domain_shows_all_test_images_and_they_count_for_each() -> None:
    split, stream = split_of(10, 3), domain(split_of(12, 3), domains=4)
    test = make_test_set(split, stream.tasks, domains=stream.domains)
    assert len(test) == 4 * 30
    parts = test.parts(3)
    assert [part.tasks for part in parts] == [(task,) for task in stream.tasks[:3]]
    for part, look in zip(parts, stream.domains, strict=False):
        assert torch.equal(part.images(), torch.from_numpy(look(test.x.numpy())))
    few = make_test_set(split, stream.tasks, limit=40, domains=stream.domains)
    assert (len(few), len(few.y)) == (40, 10)
    with pytest.raises(InputError, match="2 images in each domain cannot show 3 classes"):
        make_test_set(split, stream.tasks, limit=8, domains=stream.domains)
    with pytest.raises(InputError, match="4 tasks need as many domains, not 2"):
        make_test_set(split, stream.tasks, domains=stream.domains[:2])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"appearance": "rotations"}, "unknown appearance 'rotations' .did you mean rotation"),
        ({"domains": 1}, "domains must be between 2 and 100, not 1"),
        ({"domains": 10**9}, "not 1000000000"),
        ({"domains": 50}, "has no examples: lower domains, or give more examples"),
    ],
)
def test_impossible_domains_are_refused(fields: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        domain(split_of(10, 3), **fields)


def test_examples_of_one_number_have_no_other_appearance() -> None:
    with pytest.raises(InputError, match="no other appearance"):
        domain(split_of(10, 3, (1,)))
