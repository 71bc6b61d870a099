"""What a tracker is told: the numbers of each record, by name and step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepccg.records import Evaluation, Record, Training, dotted, summary


@dataclass(frozen=True)
class Point:
    """Some numbers at one step.

    Args:
        step: Batches learned.
        values: The numbers, by name.
    """

    step: int
    values: Mapping[str, float]


class Points:
    """Makes points of records, which come in the order they were written.

    A training record gives ``train/loss`` and whatever else the method told; an evaluation gives
    every metric of ``deepccg.records.summary`` over the evaluations so far (``eval/...``) and each
    task's accuracy (``task_3/...``).
    """

    def __init__(self) -> None:
        self._evaluations: list[Evaluation] = []

    def of(self, record: Record) -> Point:
        """The numbers of a record; those of a kind that this does not know as they stand in it."""
        if isinstance(record, Training):
            values = {"loss": record.loss, **record.extra}
            return Point(record.step, {f"train/{name}": float(v) for name, v in values.items()})
        if isinstance(record, Evaluation):
            self._evaluations.append(record)
            return Point(record.step, self._scores(record))
        numbers = {
            f"{record.type}/{name}": float(value)
            for name, value in record.to_json().items()
            if name != "step" and isinstance(value, int | float)
        }
        return Point(record.step, numbers)

    def _scores(self, last: Evaluation) -> dict[str, float]:
        so_far = summary(self._evaluations)
        scores = {f"eval/{name}": value for name, value in so_far.items() if value is not None}
        for score in last.tasks:
            of_task = f"task_{score.task}"
            scores[f"{of_task}/task_accuracy"] = score.task_correct / score.images
            if score.class_correct is not None:
                scores[f"{of_task}/class_accuracy"] = score.class_correct / score.images
        return scores


def parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as a flat table, without what it leaves open.

    >>> parameters({"seed": 0, "memory": None, "method": {"name": "er", "lr": 0.1}})
    {'seed': 0, 'method.name': 'er', 'method.lr': 0.1}
    """
    return {name: value for name, value in dotted(config) if value is not None}
