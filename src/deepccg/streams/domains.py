"""Domains: the same classes in another appearance, computed when examples are asked for."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

import numpy as np

from deepccg.core import InputError, derive_seed, did_you_mean
from deepccg.streams.arrays import Array, IntArray

Appearance = Literal["rotation", "permutation"]

MOST_DOMAINS = 100  # each keeps where its pixels come from
_BLACK = -1  # instead of a pixel: it would come from outside the image


@dataclass(frozen=True, eq=False)
class Domain:
    """One appearance: a fixed function of examples, ``[B, ...]`` to the same shape and type."""

    name: str  # what it does, in words
    change: Callable[[Array], Array] = field(repr=False)

    def __call__(self, x: Array) -> Array:
        """Return copies of the examples as this domain shows them."""
        return self.change(x)


class DomainArray:
    """An array of examples of which each is shown as its domain shows it; nothing is stored twice.

    Args:
        x: ``[N, ...]`` examples as they are, perhaps memory-mapped.
        domains: The appearances.
        owner: ``[N]``: which domain each example belongs to.
    """

    def __init__(self, x: Array, domains: tuple[Domain, ...], owner: IntArray) -> None:
        self._x, self._owner, self.domains = x, owner, domains
        self.shape, self.dtype, self.ndim = x.shape, x.dtype, x.ndim

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: IntArray) -> Array:
        """Return these rows, each in its own appearance."""
        shown, owner = np.array(self._x[rows]), self._owner[rows]
        for place in np.unique(owner):
            shown[owner == place] = self.domains[place](shown[owner == place])
        return shown


def draw_domains(
    appearance: str, count: int, shape: tuple[int, ...], seed: int
) -> tuple[Domain, ...]:
    """Return ``count`` domains; the first is the data as it is.

    - ``rotation``: images are turned by multiples of 180/count degrees, in an order drawn from
      ``seed``; a pixel takes the value nearest to where it comes from, or black. Of vectors, pairs
      of features, drawn once, are turned by such an angle.
    - ``permutation``: pixels (of all channels alike) or features change places, by another random
      permutation for each domain.

    Args:
        appearance: ``rotation`` or ``permutation``.
        count: How many, 2 to 100.
        shape: Of one example: ``[C, H, W]`` or ``[F]``.
        seed: Decides order, pairs and permutations.
    """
    if appearance not in get_args(Appearance):
        hint = did_you_mean(appearance, get_args(Appearance))
        raise InputError(
            f"unknown appearance '{appearance}'{hint}: choose one of "
            f"{', '.join(get_args(Appearance))}"
        )
    if not 2 <= count <= MOST_DOMAINS:
        raise InputError(f"domains must be between 2 and {MOST_DOMAINS}, not {count}")
    if math.prod(shape[-2:]) < 2:
        raise InputError("examples of one number have no other appearance: give wider ones")
    generator = np.random.default_rng(derive_seed(seed, "domains"))
    draw = _permutations if appearance == "permutation" else _rotations
    return Domain("as it is", np.copy), *draw(count, shape, generator)


def _permutations(
    count: int, shape: tuple[int, ...], generator: np.random.Generator
) -> Iterator[Domain]:
    for i in range(1, count):
        order = generator.permutation(math.prod(shape[-2:]))
        yield Domain(f"permutation {i}", partial(moved, order))


def _rotations(
    count: int, shape: tuple[int, ...], generator: np.random.Generator
) -> Iterator[Domain]:
    turns = 1 + generator.permutation(count - 1)
    pairs = generator.permutation(shape[0])[: shape[0] // 2 * 2].reshape(2, -1)  # of vectors
    for degrees in (180 * turns / count).tolist():
        change = (
            partial(moved, rotated_pixels(shape[-2:], degrees))
            if len(shape) == 3
            else partial(turned_pairs, pairs, degrees)
        )
        yield Domain(f"turned by {degrees:g} degrees", change)


def moved(source: IntArray, x: Array) -> Array:
    """Return examples whose pixel (or feature) ``i`` is the old ``source[i]``; -1 makes it 0."""
    flat = x.reshape(*x.shape[: -2 if x.ndim == 4 else -1], -1)
    shown = flat[..., source]
    shown[..., source == _BLACK] = 0
    return shown.reshape(x.shape)


def rotated_pixels(size: tuple[int, ...], degrees: float) -> IntArray:
    """Return where each pixel of an image ``[H, W]``, turned left, comes from, ``[H * W]``.

    >>> rotated_pixels((2, 2), 90)  # as np.rot90
    array([1, 3, 0, 2])
    """
    height, width = size
    angle, middle = math.radians(degrees), np.array([[(height - 1) / 2], [(width - 1) / 2]])
    rows, columns = np.indices((height, width)).reshape(2, -1) - middle
    cos, sin = math.cos(angle), math.sin(angle)
    row, column = np.rint(
        np.stack([sin * columns + cos * rows, cos * columns - sin * rows]) + middle
    ).astype(np.int64)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    source: IntArray = np.where(inside, row * width + column, _BLACK)
    return source


def turned_pairs(pairs: IntArray, degrees: float, x: Array) -> Array:
    """Return vectors ``[B, F]`` whose features ``pairs[:, k]`` are turned in their plane."""
    first, second = pairs
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turned = np.array(x)
    turned[:, first] = cos * x[:, first] - sin * x[:, second]
    turned[:, second] = sin * x[:, first] + cos * x[:, second]
    return turned
