"""Three clouds of points with names, in two batches: the second brings a class that sorts first."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

Clouds = Callable[..., tuple[npt.NDArray[np.float64], npt.NDArray[np.str_]]]


@pytest.fixture
def clouds() -> Clouds:
    """``clouds(names, rows)``: ``rows`` points around each name's own corner, shuffled."""
    corners = {"cow": (3, 0, 0), "dog": (0, 3, 0), "ant": (0, 0, 3), "bee": (-3, -3, -3)}
    corners["bug"] = corners["bee"]

    def make(
        names: tuple[str, ...], rows: int = 20, seed: int = 0
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.str_]]:
        random = np.random.default_rng(seed)
        y = random.permutation(np.repeat(list(names), rows))
        x = np.array([corners[name] for name in y]) + random.normal(size=(len(y), 3)) * 0.5
        return x, y

    return make
