"""Metrics of one run as pure functions of its evaluations, and their mean over seeds.

All values are fractions, to be shown in percent. With ``a[t, i]`` the accuracy on the test images
of task ``i`` once the stream has reached the end of task ``t``, every metric comes in two modes:

- ``task``: a prediction is masked to the classes of the image's task (task-incremental);
- ``class``: a prediction is over all classes seen (class-incremental).

A metric is ``None`` where it is not defined: in class mode for a method that cannot predict
without a task, and wherever the evaluations it compares were not made. "Final" means the last
evaluation given; whether a run reached its end is ``RunDirectory.finished``.

The evaluations of a run are ordered in time, as ``read_records`` gives them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from deepccg.records.schema import ClassScore, Evaluation, RecordError, TaskScore

Mode: TypeAlias = Literal["task", "class"]  # task- or class-incremental accuracy
_Floats: TypeAlias = npt.NDArray[np.float64]


def accuracy_matrix(evaluations: Sequence[Evaluation], mode: Mode) -> _Floats:
    """``a[t, i]``, ``[T, T]``: accuracy on task ``i`` at the end of task ``t``.

    Row ``t`` is the last evaluation made while task ``t`` was the current one. NaN where there
    was none, where task ``i`` had not been met, and in class mode without such predictions.
    """
    at_end_of = {evaluation.task: evaluation for evaluation in evaluations}
    size = 1 + max((score.task for e in at_end_of.values() for score in e.tasks), default=-1)
    matrix = np.full((size, size), np.nan)
    for task, evaluation in at_end_of.items():
        for score in evaluation.tasks:
            rate = _rate(score, mode)
            matrix[task, score.task] = np.nan if rate is None else rate
    return matrix


def average_accuracy(evaluations: Sequence[Evaluation], mode: Mode) -> float | None:
    """The final accuracy.

    Task mode: ``(1/T) sum_i a[T, i]``, each task weighing the same. Class mode: correct images
    over images, of the whole test set, each image counted once even if tasks overlap.
    """
    if not evaluations:
        return None
    final = evaluations[-1]
    if mode == "task":
        return _mean_if_all_known([_rate(score, mode) for score in final.tasks])
    correct = [score.class_correct for score in final.classes if score.class_correct is not None]
    return sum(correct) / final.images if correct else None


def class_incremental_by_task(evaluations: Sequence[Evaluation]) -> float | None:
    """The final class-incremental accuracy as ``(1/T) sum_i a[T, i]``, each task weighing the same.

    With overlapping tasks the classes at the ends of the order weigh less than the others.
    """
    if not evaluations:
        return None
    return _mean_if_all_known([_rate(score, "class") for score in evaluations[-1].tasks])


def class_balanced_accuracy(evaluations: Sequence[Evaluation], mode: Mode) -> float | None:
    """The final mean over classes of the accuracy on the class, each class weighing the same.

    In task mode the accuracy on a class is itself the mean over the tasks that contain it.
    """
    if not evaluations:
        return None
    return _mean_if_all_known([_rate(score, mode) for score in evaluations[-1].classes])


def forgetting(evaluations: Sequence[Evaluation], mode: Mode) -> float | None:
    """``1/(T-1) sum_{i<T} (max_{t<T} a[t, i] - a[T, i])`` (Chaudhry et al., 2018).

    How far the accuracy on earlier tasks fell from its best; negative if it only rose.
    """
    past = _past(evaluations, mode)
    return None if past is None else fmean(past.best - past.final)


def backward_transfer(evaluations: Sequence[Evaluation], mode: Mode) -> float | None:
    """``1/(T-1) sum_{i<T} (a[T, i] - a[i, i])`` (Lopez-Paz and Ranzato, 2017)."""
    past = _past(evaluations, mode)
    return None if past is None else fmean(past.final - past.learned)


def anytime_accuracy(evaluations: Sequence[Evaluation], mode: Mode) -> float | None:
    """The mean over all evaluations of the accuracy on what had been met by then.

    Each term is ``average_accuracy`` at its time. It depends on when evaluations were made:
    compare runs with the same schedule. ``None`` for a single evaluation.
    """
    if len(evaluations) < 2:
        return None
    return _mean_if_all_known([average_accuracy([e], mode) for e in evaluations])


def summary(evaluations: Sequence[Evaluation]) -> dict[str, float | None]:
    """Every metric of one run, by name."""
    result: dict[str, float | None] = {}
    modes: tuple[Mode, ...] = ("task", "class")
    for mode in modes:
        result[f"{mode}_accuracy"] = average_accuracy(evaluations, mode)
        result[f"{mode}_forgetting"] = forgetting(evaluations, mode)
        result[f"{mode}_backward_transfer"] = backward_transfer(evaluations, mode)
        result[f"{mode}_anytime_accuracy"] = anytime_accuracy(evaluations, mode)
        result[f"{mode}_balanced_accuracy"] = class_balanced_accuracy(evaluations, mode)
    result["class_accuracy_by_task"] = class_incremental_by_task(evaluations)
    return result


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` runs; its standard error is ``None`` for one run."""

    mean: float
    standard_error: float | None
    n: int


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error ``sd / sqrt(n)``, with the unbiased variance (divisor n - 1).

    >>> estimate([0.25, 0.5, 0.75])
    Estimate(mean=0.5, standard_error=0.14433756729740646, n=3)
    """
    if not values:
        raise RecordError("an estimate needs at least one run")
    n = len(values)
    error = stdev(values) / math.sqrt(n) if n > 1 else None
    return Estimate(mean=fmean(values), standard_error=error, n=n)


def aggregate(summaries: Sequence[Mapping[str, float | None]]) -> dict[str, Estimate | None]:
    """Each metric over several runs (seeds); ``None`` unless every run defines it."""
    if not summaries:
        raise RecordError("nothing to aggregate: give the summary of at least one run")
    result: dict[str, Estimate | None] = {}
    for name in summaries[0]:
        known = [value for run in summaries if (value := run[name]) is not None]
        result[name] = estimate(known) if len(known) == len(summaries) else None
    return result


class _Past(NamedTuple):
    """Accuracies on every task but the current one, ``[T - 1]`` each."""

    learned: _Floats  # at the end of the task itself: a[i, i]
    best: _Floats  # at the end of any task but the current one
    final: _Floats


def _past(evaluations: Sequence[Evaluation], mode: Mode) -> _Past | None:
    """``None`` for a single task, or if some task was not evaluated while it was current."""
    matrix = accuracy_matrix(evaluations, mode)
    if len(matrix) < 2:
        return None
    current = evaluations[-1].task
    others = np.delete(np.arange(len(matrix)), current)
    earlier = matrix[np.ix_(others, others)]
    learned, final = earlier.diagonal(), matrix[current, others]
    if np.isnan(learned).any() or np.isnan(final).any():
        return None
    return _Past(learned=learned, best=np.nanmax(earlier, axis=0), final=final)


def _rate(score: TaskScore | ClassScore, mode: Mode) -> float | None:
    correct = score.task_correct if mode == "task" else score.class_correct
    return None if correct is None else correct / score.images


def _mean_if_all_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None
