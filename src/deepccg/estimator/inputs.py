"""Validation of users' inputs and labels: arrays become tensors."""

import math
from typing import Any

import numpy as np
import torch
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)
from torch import Tensor

from deepccg.core import InputError
from deepccg.estimator.columns import Columns, Numbers, Texts
from deepccg.estimator.features import FloatArray
from deepccg.estimator.frames import all_numbers, as_frame, read_frame
from deepccg.estimator.plain_labels import Labels, label_array, plain_labels

_VECTORS = (np.float64, np.float32)  # other types become the first
_IMAGES = (np.float32, np.uint8)


def check_inputs(estimator: Any, x: Any, *, reset: bool = False, learn: bool = False) -> Tensor:
    """Return ``x`` as ``[N, D]`` floats or ``[N, C, H, W]`` bytes or floats.

    Args:
        estimator: Has ``n_features_in_``, ``feature_names_in_``, ``input_shape_`` and ``_columns``.
        x: An array or data frame ``[N, F]``, or images ``[N, H, W, C]``.
        reset: Whether this is the first data, which later data must match.
        learn: Whether these examples are learned, and not only predicted.
    """
    if not reset and _is_plain(estimator, x):
        if learn:
            estimator._columns = known_columns(estimator).learned(x, {})
        return torch.from_numpy(x.copy())
    texts = [] if reset else known_columns(estimator).texts
    if (frame := as_frame(x)) is not None and (texts or not all_numbers(frame)):
        return _table(estimator, x, frame, reset, learn)
    if texts:
        raise InputError("a data frame with text or categories was learned: X must be one, too")
    x = readable(x, "X")
    array = x if getattr(x, "shape", None) else np.asarray(x)
    if getattr(getattr(array, "dtype", None), "kind", None) in ("m", "M"):
        raise InputError("X holds dates or times: give numbers, such as the days since a first day")
    shape = tuple(array.shape)
    if len(shape) == 3:
        raise InputError("images are [N, H, W, C]: grey ones need a last axis, X[..., None]")
    known = None if reset else estimator.input_shape_
    if known is not None and len(known) == 3 and len(shape) != 4:
        raise InputError(f"images of {list(known)} were learned, this is {list(shape)}")
    if len(shape) == 4 and (known is None or len(known) == 3):
        return _images(estimator, x, reset)
    vectors = _vectors(estimator, x, reset)
    if reset:
        estimator.input_shape_ = vectors.shape[1:]
        estimator._columns = Columns.of([None] * vectors.shape[1])
    return torch.from_numpy(_encoded(estimator, np.array(vectors), {}, reset or learn))


def check_labels(y: Any, x: Tensor) -> Labels:
    """Return ``y`` as ``[N]`` class labels, one for each of ``x``."""
    if type(y) is np.ndarray and y.dtype.kind in "biuU" and y.shape == (len(x),):
        return y
    if y is None:
        raise InputError("learning requires y to be passed, but the target y is None")
    y = readable(y, "y")
    listed = label_array(y) if isinstance(y, list | tuple) else y  # NumPy would truncate enums
    array = plain_labels(column_or_1d(listed, warn=True))
    check_consistent_length(x, array)
    check_classification_targets(array)
    return array


def check_weights(weight: Any, x: Any) -> FloatArray:
    """Return ``weight`` as ``[N]`` floats from 0 up, one for each of ``x``."""
    found: FloatArray = _check_sample_weight(readable(weight, "sample_weight"), x, dtype=np.float64)
    if (found < 0).any():
        raise InputError(f"sample_weight has {found.min()}: weights are 0 or more")
    if not (found > 0).any():
        raise InputError("sample_weight is 0 everywhere: no example counts")
    return found


def counted(x: Any, y: Any, weight: Any) -> tuple[Any, Any, Tensor | None]:
    """Return the examples that have a weight above 0, and these weights, ``[N]``."""
    if weight is None:
        return x, y, None
    x, y = readable(x, "X"), readable(y, "y")
    found = check_weights(weight, x)
    rows = np.flatnonzero(found > 0)
    if y is None or len(rows) == len(found):
        return x, y, torch.from_numpy(found)
    check_consistent_length(x, y)
    return _safe_indexing(x, rows), _safe_indexing(y, rows), torch.from_numpy(found[rows])


def readable(values: Any, what: str) -> Any:
    """Return something that NumPy can read: tensors as arrays, frames by their ``to_numpy``."""
    if isinstance(values, Tensor):
        return _from_tensor(values, what)
    if isinstance(values, list | tuple):
        tensors = any(isinstance(each, Tensor) for each in values)
        return [readable(each, what) for each in values] if tensors else values
    if hasattr(values, "__array__"):
        return values
    if callable(getattr(values, "to_numpy", None)):
        return values.to_numpy()
    if callable(getattr(values, "collect", None)):
        raise InputError(f"{what} is a {type(values).__name__}, not computed yet: call collect()")
    return values


def known_columns(estimator: Any) -> Columns:
    """Return the columns learned; of older files, and after River made room, none was."""
    (width,) = estimator.input_shape_ if len(estimator.input_shape_) == 1 else (0,)
    known: Columns | None = vars(estimator).get("_columns")
    return known if known is not None and len(known) == width else Columns.of([None] * width)


def merge_columns(estimator: Any, other: Columns | None) -> None:
    """Have the columns of an estimator and those of another, which must fit together."""
    if other is not None and len(own := known_columns(estimator)) == len(other):
        names = vars(estimator).get("feature_names_in_", range(len(own)))
        estimator._columns = own.merged(other, names)


def check_slots(index: Any, size: int) -> list[int]:
    """Return rows of a memory of ``size`` examples, sorted, each once."""
    rows = np.unique(np.atleast_1d(np.asarray(index)))
    if rows.dtype.kind not in "iu" or (len(rows) and not 0 <= rows[0] <= rows[-1] < size):
        raise InputError(f"index is {index!r}: the memory has the rows 0 to {size - 1}")
    return [int(row) for row in rows]


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Reject what is not a whole number from ``least`` up."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is {value!r}: it must be a whole number from {least} up")


def check_prior(class_prior: Any) -> None:
    """Reject what is no prior of the classes."""
    if class_prior not in ("uniform", "observed"):
        raise InputError(f"class_prior is {class_prior!r}: choose uniform or observed")


def _from_tensor(values: Tensor, what: str) -> Any:
    if values.is_meta:
        raise InputError(f"{what} is on the device meta, which holds no numbers: give it values")
    try:
        plain = values.detach().cpu().resolve_conj().resolve_neg()
        return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    except (RuntimeError, TypeError) as error:  # sparse, quantised, nested
        reason = str(error).partition("\n")[0]
        raise InputError(f"{what} is a tensor that NumPy cannot read: {reason}") from None


def _is_plain(estimator: Any, x: Any) -> bool:
    """Return whether scikit-learn's checks, half a millisecond of every step, can be skipped."""
    return (
        type(x) is np.ndarray
        and x.dtype in _VECTORS
        and x.shape[1:] == estimator.input_shape_
        and x.ndim == 2
        and len(x) > 0
        and "feature_names_in_" not in vars(estimator)
        and not any(known_columns(estimator).categories)
        and bool(np.isfinite(x).all())
    )


def _vectors(estimator: Any, x: Any, reset: bool) -> Numbers:
    try:
        found: Numbers = validate_data(
            estimator, x, dtype=_VECTORS, reset=reset, ensure_all_finite="allow-nan"
        )
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise InputError(
            f"X is an array that holds text ({error}): give a data frame, whose columns of text "
            f"are encoded"
        ) from None
    return found


def _encoded(estimator: Any, numbers: Numbers, texts: Texts, learn: bool) -> Numbers:
    """Return what the learner gets of a table; ``learn`` its columns first."""
    columns = known_columns(estimator)
    if learn:
        columns = estimator._columns = columns.learned(numbers, texts)
    return columns.encode(numbers, texts)


def _table(estimator: Any, x: Any, frame: Any, reset: bool, learn: bool) -> Tensor:
    """Return a data frame that is not all numbers, of columns that may be text."""
    if not len(frame):
        raise InputError("X has no rows: give at least one")
    known = None if reset else known_columns(estimator)
    if known is not None and len(estimator.input_shape_) != 1:
        raise InputError(f"images of {list(estimator.input_shape_)} were learned, this is a table")
    validate_data(estimator, x, skip_check_array=True, reset=reset)
    found = read_frame(frame, None if known is None else known.texts)
    if known is None:
        estimator.input_shape_ = found.numbers.shape[1:]
        estimator._columns = found.columns()
    return torch.from_numpy(_encoded(estimator, found.numbers, found.texts, reset or learn))


def _images(estimator: Any, x: Any, reset: bool) -> Tensor:
    images = check_array(x, dtype=_IMAGES, allow_nd=True, input_name="X")
    shape = images.shape[1:]
    if reset:
        estimator.input_shape_ = shape
        estimator.n_features_in_ = math.prod(shape)
        vars(estimator).pop("feature_names_in_", None)
        vars(estimator).pop("_columns", None)
    elif shape != estimator.input_shape_:
        raise InputError(
            f"images of {list(estimator.input_shape_)} were learned, these are {list(shape)}"
        )
    return torch.from_numpy(np.array(images)).permute(0, 3, 1, 2).contiguous()
