"""Data sets from NumPy arrays."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError
from deepccg.streams.data import Dataset, Split
from deepccg.streams.labels import align_labels, as_array, encode_labels
from deepccg.streams.stream import Array


def from_arrays(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_test: npt.ArrayLike,
    y_test: npt.ArrayLike,
    class_names: Sequence[str] | None = None,
    name: str = "arrays",
) -> Dataset:
    """A data set from arrays.

    Args:
        x: Training examples: uint8 images, grey ``[N, H, W]`` or channels last ``[N, H, W, C]``
            with 1 to 4 channels, or vectors of numbers ``[N, F]`` (used as float32).
        y: Training labels ``[N]``: integers, contiguous or not, or strings.
        x_test: Test examples, like ``x``.
        y_test: Test labels, like ``y``.
        class_names: One name per class: integer labels are then indices into it, string labels
            must be among it. By default the names are the labels themselves, sorted.
        name: How the data set is called in tables.

    >>> x = np.zeros((4, 8, 8, 3), dtype=np.uint8)
    >>> data = from_arrays(x, ["cat", "dog", "cat", "dog"], x, ["dog", "dog", "cat", "cat"])
    >>> data.class_names, data.train.x.shape, data.test.y
    (('cat', 'dog'), (4, 3, 8, 8), array([1, 1, 0, 0]))
    """
    labels, names = encode_labels(y, class_names)
    own_labels, own_names = encode_labels(y_test, class_names)
    train = Split(_examples(x), labels)
    test = Split(_examples(x_test), align_labels(own_labels, own_names, names))
    if train.x.shape[1:] != test.x.shape[1:]:
        raise InputError(
            f"training and test examples differ in shape: {list(train.x.shape[1:])} "
            f"and {list(test.x.shape[1:])}"
        )
    return Dataset(name, names, lambda: train, lambda: test)


def _examples(values: npt.ArrayLike) -> Array:
    """Vectors ``[N, F]`` as float32, images as ``[N, C, H, W]``."""
    array = as_array(values, "examples")
    if array.ndim == 2 and array.dtype.kind in "biuf":
        with np.errstate(over="ignore"):  # a number too large for float32 is refused by Split
            return array.astype(np.float32)
    if array.ndim == 2:
        raise InputError(f"vectors must be numbers, not {array.dtype}: convert them")
    if array.ndim in (3, 4) and array.dtype != np.uint8:
        raise InputError(
            f"images must be uint8, 0 to 255, not {array.dtype}: scale and convert them"
        )
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.ndim != 4 or not 1 <= array.shape[3] <= 4:
        raise InputError(
            f"examples must be vectors [N, F] or images [N, H, W] or [N, H, W, C] with 1 to 4 "
            f"channels, not {list(array.shape)}; bring channels last with x.transpose(0, 2, 3, 1)"
        )
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
