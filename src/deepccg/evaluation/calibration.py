"""Calibration: whether predicted probabilities match how often predictions are right."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError

Floats = npt.NDArray[np.float64]
Bins = Literal["width", "mass"]

_ROUNDING = 1e-3  # how far a row may be from summing to one


@dataclass(frozen=True)
class Reliability:
    """Predictions grouped by confidence, the probability of the predicted class.

    Args:
        confidence: Mean confidence of each group, ``[G]``; NaN for an empty one.
        accuracy: Share of right predictions in each group, ``[G]``; NaN for an empty one.
        count: Predictions in each group, ``[G]``.
    """

    confidence: Floats
    accuracy: Floats
    count: npt.NDArray[np.int64]

    @property
    def error(self) -> float:
        """Mean over predictions of their group's ``|accuracy - confidence|``."""
        full = self.count > 0
        gap = np.abs(self.accuracy[full] - self.confidence[full])
        return float((self.count[full] * gap).sum() / self.count.sum())


def reliability(
    y: npt.ArrayLike,
    probability: npt.ArrayLike,
    *,
    classes: npt.ArrayLike | None = None,
    bins: int = 15,
    equal: Bins = "width",
) -> Reliability:
    """Group predictions by their confidence.

    Args:
        y: True labels ``[N]``.
        probability: ``[N, K]``, as ``predict_proba`` gives it.
        classes: The label of each column; default 0 to K - 1.
        bins: How many groups.
        equal: ``width`` divides the confidences 0 to 1 evenly, each interval closed above;
            ``mass`` divides the predictions, sorted by confidence, into groups of equal size.
    """
    p, own = _validate(y, probability, classes)
    if bins < 1:
        raise InputError(f"bins is {bins}: ask for one or more")
    confidence, right = p.max(axis=1), p.argmax(axis=1) == own
    if equal == "width":
        group = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence)
    elif equal == "mass":
        group = np.empty(len(p), dtype=np.int64)
        group[np.argsort(confidence, kind="stable")] = np.arange(len(p)) * bins // len(p)
    else:
        raise InputError(f"equal is {equal!r}: choose width or mass")
    count = np.bincount(group, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean, rate = (np.bincount(group, v, minlength=bins) / count for v in (confidence, right))
    return Reliability(mean, rate, count)


def expected_calibration_error(
    y: npt.ArrayLike,
    probability: npt.ArrayLike,
    *,
    classes: npt.ArrayLike | None = None,
    bins: int = 15,
    equal: Bins = "width",
) -> float:
    """Return the mean difference of confidence and accuracy over predictions (ECE).

    Constant predictions score 0 if they are right on average: read it together with
    ``brier_score`` or scikit-learn's ``log_loss``, which reward telling examples apart.
    The arguments are those of ``reliability``.

    >>> expected_calibration_error(["a", "b"], [[0.9, 0.1], [0.9, 0.1]], classes=["a", "b"])
    0.4
    """
    return reliability(y, probability, classes=classes, bins=bins, equal=equal).error


def brier_score(
    y: npt.ArrayLike, probability: npt.ArrayLike, *, classes: npt.ArrayLike | None = None
) -> float:
    """Return the mean over examples of ``sum_c (p_c - 1[c = y])^2``, from 0 to 2.

    >>> brier_score([0, 1], [[1.0, 0.0], [0.5, 0.5]])
    0.25
    """
    p, own = _validate(y, probability, classes)
    truth = np.arange(p.shape[1]) == own[:, None]
    return float(np.square(p - truth).sum(axis=1).mean())


def _validate(
    y: npt.ArrayLike, probability: npt.ArrayLike, classes: npt.ArrayLike | None
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Probabilities ``[N, K]`` and the column of each true label ``[N]``."""
    p: Floats = np.asarray(probability, dtype=np.float64)
    if p.ndim != 2 or not p.size:
        raise InputError(f"probabilities are [N, K] with N and K at least 1, not {list(p.shape)}")
    if not (p >= 0).all() or not (np.abs(p.sum(axis=1) - 1) < _ROUNDING).all():
        raise InputError("probabilities must be 0 or more and sum to 1 in every row")
    names: npt.NDArray[Any] = np.arange(p.shape[1]) if classes is None else np.asarray(classes)
    labels: npt.NDArray[Any] = np.asarray(y)
    if names.shape != p.shape[1:] or labels.shape != p.shape[:1]:
        raise InputError(
            f"{list(p.shape)} probabilities need {p.shape[0]} labels and {p.shape[1]} classes, "
            f"not {list(labels.shape)} and {list(names.shape)}"
        )
    order = np.argsort(names)
    place = np.minimum(np.searchsorted(names, labels, sorter=order), len(names) - 1)
    own = order[place]
    if not (names[own] == labels).all():
        unknown = labels[names[own] != labels][0]
        raise InputError(f"the label {unknown!r} is none of the classes {names.tolist()}")
    return p, own
