"""Removing what was stored, as if it had never been stored.

The network is not touched: what it learned from a removed example stays in its weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from deepccg.core import InputError, State
from deepccg.estimator.inputs import check_slots
from deepccg.estimator.labels import plain_labels
from deepccg.learners.embedding_cache import without_cache
from deepccg.learners.error_rates import without_rates
from deepccg.methods.deepccg import ERRORS


def forget(estimator: Any, cls: Any, index: Any) -> None:
    """See ``DeepCCGClassifier.forget``."""
    if (cls is None) == (index is None):
        raise InputError("say what to forget: a class (cls=) or stored examples (index=)")
    # Cached embeddings of others have moved with those of the forgotten: they are computed anew.
    state = without_cache(estimator.learner_.state_dict())
    if ERRORS in state.meta["parts"]:
        state = without_rates(state, ERRORS)
    if cls is not None:
        gone = estimator._labels.encode(plain_labels(cls)).tolist()
    else:
        slots = check_slots(index, len(state.tensors["memory.y"]))
        columns = torch.unique(state.tensors["memory.y"][slots]).tolist()
        state = without_examples(state, slots)
        gone = unseen_classes(state, columns)
    if gone:
        new_code = estimator._labels.closing_up(gone)
        state = without_classes(state, new_code, estimator._tasks.closing_up(new_code))
        estimator._tasks = estimator._tasks.renumbered(new_code)
        estimator._plan = estimator._plan.renumbered(new_code)
        estimator._labels = estimator._labels.renumbered(new_code)
        estimator.classes_ = estimator._labels.labels
    estimator.learner_ = estimator._plan.build()  # a new one: free slots of the old hold values
    estimator.learner_.load_state_dict(state)
    vars(estimator).pop("_watch", None)  # it follows examples that may have to go


def without_memory(state: State, fresh: State) -> State:
    """A state that goes on with an empty memory and no class seen, both taken from ``fresh``."""
    tensors = {name: value for name, value in state.tensors.items() if not _in_memory(name)}
    tensors |= {name: value for name, value in fresh.tensors.items() if _in_memory(name)}
    anew = {name: fresh.meta["parts"][name] for name in ("outputs", "memory")}
    return State(tensors, {**state.meta, "parts": {**state.meta["parts"], **anew}})


def without_examples(state: State, slots: Sequence[int]) -> State:
    """A DeepCCG state without the stored examples in ``slots``, which count as never seen."""
    keep = torch.ones(len(state.tensors["memory.y"]), dtype=torch.bool)
    keep[list(slots)] = False
    outputs = dict(state.meta["parts"]["outputs"])
    gone = torch.bincount(state.tensors["memory.y"][~keep].cpu(), minlength=len(outputs["seen"]))
    seen = (torch.tensor(outputs["seen"]) - gone).clamp(min=0).tolist()
    outputs["seen"] = seen
    outputs["arrival"] = [column for column in outputs["arrival"] if seen[column]]
    return _replaced(_kept_rows(state, keep), outputs)


def unseen_classes(state: State, of: Sequence[int]) -> list[int]:
    """Which of the classes in columns ``of`` have no example left that counts, by code."""
    outputs = state.meta["parts"]["outputs"]
    return [outputs["classes"][column] for column in of if not outputs["seen"][column]]


def without_classes(
    state: State, new_code: Mapping[int, int], new_task: Mapping[int, int]
) -> State:
    """A DeepCCG state that never met the classes and tasks that get no new number."""
    outputs = state.meta["parts"]["outputs"]
    codes = outputs["classes"]
    columns = [column for column, code in enumerate(codes) if code in new_code]
    new_column = _ranks(columns)
    rows = [r for r, (number, _) in enumerate(outputs["tasks"], start=1) if number in new_task]
    new_row = _ranks([0, *rows])  # row 0 is the open task
    tasks = [outputs["tasks"][row - 1] for row in rows]
    changed = {
        "classes": [new_code[codes[column]] for column in columns],
        "seen": [outputs["seen"][column] for column in columns],
        "arrival": [new_column[c] for c in outputs["arrival"] if c in new_column],
        "current": new_row.get(outputs["current"]),
        "tasks": [
            [new_task[number], [new_column[c] for c in task if c in new_column]]
            for number, task in tasks
        ],
    }
    y = state.tensors["memory.y"]
    keep = torch.tensor([column in new_column for column in y.tolist()], dtype=torch.bool)
    tensors = dict(_kept_rows(state, keep).tensors)
    for name, ranks in (("memory.y", new_column), ("memory.task", new_row)):
        renumbered = [ranks[value] for value in tensors[name].tolist()]
        tensors[name] = torch.tensor(renumbered, dtype=torch.int64, device=y.device)
    return _replaced(State(tensors, state.meta), changed)


def _in_memory(name: str) -> bool:
    return name.startswith("memory.")


def _ranks(values: Sequence[int]) -> dict[int, int]:
    return {value: rank for rank, value in enumerate(values)}


def _kept_rows(state: State, keep: torch.Tensor) -> State:
    tensors = {
        name: value[keep.to(value.device)] if _in_memory(name) else value
        for name, value in state.tensors.items()
    }
    return State(tensors, state.meta)


def _replaced(state: State, outputs: Mapping[str, object]) -> State:
    parts = {**state.meta["parts"], "outputs": dict(outputs)}
    return State(state.tensors, {**state.meta, "parts": parts})
