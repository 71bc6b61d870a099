"""Labels of any kind as integers 0 to K - 1."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError
from deepccg.streams.stream import IntArray


def encode_labels(
    values: npt.ArrayLike, names: Sequence[str] | None = None
) -> tuple[IntArray, tuple[str, ...]]:
    """Encode labels as indices into class names.

    Args:
        values: ``[N]`` integers or strings.
        names: The class names, if known: integers are then indices into them and strings must be
            among them. Otherwise the classes are the different values, sorted.

    Returns:
        The ``[N]`` int64 labels and the class names.

    >>> encode_labels(["dog", "cat", "dog"])
    (array([1, 0, 1]), ('cat', 'dog'))
    >>> encode_labels([7, 3])
    (array([1, 0]), ('3', '7'))
    """
    if names is not None and len(set(names)) != len(names):
        raise InputError("two classes have the same name")
    array = as_array(values, "labels")
    if array.ndim != 1:
        raise InputError(f"labels must have the shape [N], not {list(array.shape)}")
    if array.dtype == object and all(isinstance(value, str) for value in array):
        array = array.astype(np.str_)
    if array.dtype.kind not in "biuU":
        raise InputError(f"labels must be integers or strings, not {array.dtype}")
    if names is not None and array.dtype.kind != "U":
        return _as_indices(array, len(names)), tuple(names)
    found, y = np.unique(array, return_inverse=True)
    own_names = tuple(str(value) for value in found)
    if names is None:
        return y.astype(np.int64), own_names
    return align_labels(y.astype(np.int64), own_names, names), tuple(names)


def as_array(values: npt.ArrayLike, what: str) -> npt.NDArray[np.generic]:
    """Return ``np.asarray(values)``; an ``InputError`` if they make no array."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what} make no array: {error}") from None


def align_labels(y: IntArray, names: Sequence[str], reference: Sequence[str]) -> IntArray:
    """Renumber labels from the order of ``names`` to that of ``reference``."""
    if tuple(names) == tuple(reference):
        return y
    position = {name: i for i, name in enumerate(reference)}
    renumbered = np.array([position.get(name, -1) for name in names], dtype=np.int64)[y]
    if len(y) and renumbered.min() < 0:
        unknown = names[int(y[renumbered.argmin()])]
        raise InputError(f"the class '{unknown}' is not one of the {len(position)} known classes")
    return renumbered


def _as_indices(labels: npt.NDArray[np.generic], n_classes: int) -> IntArray:
    y = labels.astype(np.int64)
    outside = np.flatnonzero((y < 0) | (y >= n_classes))
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"row {row} has the label {y[row]}, outside 0 to {n_classes - 1}"
            + (" (is this part unlabelled?)" if y[row] == -1 else "")
        )
    return y
