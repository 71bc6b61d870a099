"""From logits to what scikit-learn's classifiers answer."""

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError

FloatArray = npt.NDArray[np.float64]

CERTAIN = 1e9  # log odds of what is impossible or certain, so that they are finite


def check_predicted(logits: FloatArray) -> None:
    """Refuse inputs on which the encoder or the classifier has overflown."""
    rows = np.isnan(logits.max(axis=1, initial=-np.inf))
    if rows.any():
        raise InputError(
            f"the outputs for row {rows.argmax()} of X are not numbers: its values are too large "
            f"for this encoder; scale the inputs"
        )


def log_softmax(logits: FloatArray) -> FloatArray:
    """Log probabilities of ``logits [N, K]``."""
    total: FloatArray = np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return logits - total


def log_odds(logits: FloatArray) -> FloatArray:
    """``log p_c / (1 - p_c)`` of ``logits [N, K]``, exact also where p_c is nearly 1.

    >>> log_odds(np.log([[0.2, 0.8]])).round(4).tolist()
    [[-1.3863, 1.3863]]
    """
    best = logits.argmax(axis=1)[:, None]
    rest = logits.copy()
    np.put_along_axis(rest, best, -np.inf, axis=1)
    rest_total = np.logaddexp.reduce(rest, axis=1, keepdims=True)
    total = np.logaddexp(rest_total, np.take_along_axis(logits, best, axis=1))
    odds = rest - total - np.log1p(-np.exp(rest - total))  # here p_c is at most a half
    np.put_along_axis(odds, best, np.take_along_axis(logits, best, axis=1) - rest_total, axis=1)
    return np.clip(odds, -CERTAIN, CERTAIN)
