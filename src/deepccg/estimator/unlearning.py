"""Unlearning: a learner's state without some of its examples or classes.

The network is not touched: what it learned from a removed example stays in its weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from deepccg.core import InputError, State
from deepccg.estimator.inputs import check_slots
from deepccg.estimator.labels import LabelTable, Renumbered
from deepccg.estimator.plain_labels import plain_labels
from deepccg.learners.context import without_cache
from deepccg.learners.error_rates import without_rates
from deepccg.methods.deepccg import ERRORS

_BY_CLASS = {"statistics.count", "statistics.mean", "statistics.record"}  # [K, C, ...], CCG's
_SHARES = "statistics.shares"  # [C, P], CCG's


def unlearn(state: State, labels: LabelTable, cls: Any, index: Any) -> tuple[State, Renumbered]:
    """Return a DeepCCG state, and its labels, without a class or without stored examples.

    Args:
        state: The learner's.
        labels: Those it knows.
        cls: A label, or several; or else
        index: Rows of the memory.
    """
    if (cls is None) == (index is None):
        raise InputError("say what to forget: a class (cls=) or stored examples (index=)")
    # Cached embeddings and error rates of others depend on the forgotten: drop them all.
    state = without_cache(state)
    if ERRORS in state.meta["parts"]:
        state = without_rates(state, ERRORS)
    if cls is not None:
        forgotten = labels.encode(plain_labels(cls)).tolist()
    else:
        slots = check_slots(index, len(state.tensors["memory.y"]))
        columns = torch.unique(state.tensors["memory.y"][slots]).tolist()
        state = _without_examples(state, slots)
        outputs = state.meta["parts"]["outputs"]
        forgotten = [outputs["classes"][c] for c in columns if not outputs["seen"][c]]
    kept = labels.without(forgotten)
    if forgotten:
        state = without_classes(state, kept.new_code, kept.new_task)
    return state, kept


def without_memory(state: State, fresh: State) -> State:
    """Return the state with the empty memory and class table of ``fresh``."""
    tensors = {name: value for name, value in state.tensors.items() if not _in_memory(name)}
    tensors |= {name: value for name, value in fresh.tensors.items() if _in_memory(name)}
    emptied = {name: fresh.meta["parts"][name] for name in ("outputs", "memory")}
    return State(tensors, {**state.meta, "parts": {**state.meta["parts"], **emptied}})


def _without_examples(state: State, slots: Sequence[int]) -> State:
    """Return a state without the stored examples in ``slots``, which count as never seen."""
    keep = torch.ones(len(state.tensors["memory.y"]), dtype=torch.bool)
    keep[list(slots)] = False
    outputs = dict(state.meta["parts"]["outputs"])
    gone = torch.bincount(state.tensors["memory.y"][~keep].cpu(), minlength=len(outputs["seen"]))
    seen = (torch.tensor(outputs["seen"]) - gone).clamp(min=0).tolist()
    outputs["seen"] = seen
    outputs["arrival"] = [column for column in outputs["arrival"] if seen[column]]
    return _changed(state, keep, outputs)


def without_classes(
    state: State, new_code: Mapping[int, int], new_task: Mapping[int, int]
) -> State:
    """Return a state that never saw the classes and tasks that have no new number."""
    outputs = state.meta["parts"]["outputs"]
    codes = outputs["classes"]
    columns = [column for column, code in enumerate(codes) if code in new_code]
    new_column = _ranks(columns)
    kept = [i for i, (number, _) in enumerate(outputs["tasks"], start=1) if number in new_task]
    new_task_idx = _ranks([0, *kept])  # 0 is the open task
    changed = {
        "classes": [new_code[codes[column]] for column in columns],
        "seen": [outputs["seen"][column] for column in columns],
        "arrival": [new_column[c] for c in outputs["arrival"] if c in new_column],
        "current": new_task_idx.get(outputs["current"]),
        "tasks": [
            [new_task[number], [new_column[c] for c in task if c in new_column]]
            for number, task in (outputs["tasks"][i - 1] for i in kept)
        ],
    }
    y = state.tensors["memory.y"]
    keep = torch.tensor([column in new_column for column in y.tolist()], dtype=torch.bool)
    left = _changed(state, keep, changed)
    tensors = dict(left.tensors)
    for name in _BY_CLASS & tensors.keys():
        tensors[name] = tensors[name][:, columns]
    if _SHARES in tensors:
        tensors[_SHARES] = tensors[_SHARES][columns]
    for name, ranks in (("memory.y", new_column), ("memory.task", new_task_idx)):
        renumbered = [ranks[value] for value in tensors[name].tolist()]
        tensors[name] = torch.tensor(renumbered, dtype=torch.int64, device=y.device)
    return State(tensors, left.meta)


def relabelled(state: State, new_code: Mapping[int, int]) -> State:
    """Return a state whose classes have other codes."""
    outputs = state.meta["parts"]["outputs"]
    changed = {**outputs, "classes": [new_code[code] for code in outputs["classes"]]}
    return State(
        state.tensors, {**state.meta, "parts": {**state.meta["parts"], "outputs": changed}}
    )


def _in_memory(name: str) -> bool:
    return name.startswith("memory.")


def _ranks(values: Sequence[int]) -> dict[int, int]:
    return {value: rank for rank, value in enumerate(values)}


def _changed(state: State, keep: torch.Tensor, outputs: Mapping[str, object]) -> State:
    """Return a state with these of the stored examples, ``keep [M]``, and this class table."""
    tensors = {
        name: value[keep.to(value.device)] if _in_memory(name) else value
        for name, value in state.tensors.items()
    }
    parts = {**state.meta["parts"], "outputs": dict(outputs)}
    return State(tensors, {**state.meta, "parts": parts})
