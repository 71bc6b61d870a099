"""What sums allow: two learners of the closed form as one, and examples or classes taken out."""

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from deepccg.core import InputError
from deepccg.memory import MemoryStore

if TYPE_CHECKING:
    from deepccg.methods.ccg import CCG

WEIGHT = "weight"  # of examples that wait: a column of the memory


def waiting_weight(waiting: MemoryStore) -> Tensor | None:
    """How often each of the examples that wait counts, ``[M]``, if they have weights."""
    return waiting[WEIGHT] if WEIGHT in waiting.extra_bytes else None


def merge_into(learner: "CCG", other: "CCG") -> None:
    """Add everything that ``other`` has learned; see ``CCG.merge``."""
    _require_exact(learner, "merge")
    _require_mergeable(learner, other)
    columns, tasks = learner.class_table.merge(other.class_table)
    learner.statistics.grow(len(learner.class_table))
    held = other.memory
    waiting = [(held.x, columns[held.y], tasks[held.task], waiting_weight(held))]
    if other.ready and not learner.ready:
        held = learner.memory
        waiting.append((held.x, held.y, held.task, waiting_weight(held)))
        learner.network.load_state_dict(other.network.state_dict())
        learner.memory.clear()
    if learner.inputs.shape is None:
        learner.inputs = copy.deepcopy(other.inputs)
    own, theirs = learner.statistics, other.statistics
    own.members[0].statistics.merge(theirs.members[0].statistics, columns.to(learner.device))
    own.members[0].changed()
    own.weighted = own.weighted or theirs.weighted
    for x, y, task_idx, weight in waiting:
        if len(y):
            learner.take(x, y, task_idx, weight)
    learner.steps += other.steps


def take_out(learner: "CCG", x: Tensor, y: Tensor, weight: Tensor | None) -> None:
    """Take examples out again; see ``CCG.unlearn``."""
    _require_exact(learner, "unlearn")
    x = learner.validate_inputs(x, "x")
    if len(x) != len(y):
        raise InputError(f"unlearn: {len(x)} examples have {len(y)} labels")
    weight = None if weight is None else weight.to(x.device, learner.dtype)
    with learner.transaction(often=False):
        if learner.ready:
            columns = learner.class_table.uncount(y.tolist()).to(learner.device)
            _remove(learner, x, columns, None if weight is None else weight.double())
        else:
            learner.memory.remove(_waiting_slots(learner, x, y, weight))
            learner.class_table.uncount(y.tolist())
            learner.provisional = None


def forget_class(learner: "CCG", label: int) -> None:
    """Take a class out; see ``CCG.forget``."""
    _require_exact(learner, "forget")
    if learner.ready and not learner.forgettable:
        raise InputError(
            "forget needs what the class alone has added to the covariance: ask for it before the "
            "first example, by make_forgettable() or CCGClassifier(forgettable=True), or give the "
            "class's examples to unlearn"
        )
    column = learner.class_table.classes.index(label)
    with learner.transaction(often=False):
        seen = int(learner.class_table.seen[column])
        learner.class_table.uncount([label] * seen)
        learner.memory.remove((learner.memory.y == column).nonzero().flatten())
        learner.provisional = None
        if not bool((learner.class_table.seen > 0).any()):
            learner.clear_statistics()
        elif learner.ready and seen:
            member = learner.statistics.members[0]
            member.statistics.forget(column)
            member.changed()


def _remove(learner: "CCG", x: Tensor, columns: Tensor, weight: Tensor | None) -> None:
    """Take examples of these classes, which count as not seen by now, out of the statistics."""
    seen, member = learner.class_table.seen.to(learner.device) > 0, learner.statistics.members[0]
    if not bool(seen.any()):
        learner.clear_statistics()
        return
    member.statistics.remove(learner.embed(x), columns, weight=weight)
    member.changed()
    if not torch.equal(member.statistics.count > 0, seen):
        raise InputError("unlearn: these weights are not those that were learned")


def _waiting_slots(learner: "CCG", x: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
    """Where these examples wait, each in a slot of its own, ``[B]``."""
    waiting, free = learner.memory, list(range(learner.memory.size))
    labels = [learner.class_table.classes[column] for column in waiting.y.tolist()]
    ones = x.new_ones(max(len(x), waiting.size), dtype=learner.dtype)
    held, wanted = (
        each if each is not None else ones for each in (waiting_weight(waiting), weight)
    )
    slots = []
    for i, label in enumerate(y.tolist()):
        alike = (
            j
            for j in free
            if labels[j] == label and held[j] == wanted[i] and torch.equal(waiting.x[j], x[i])
        )
        if (found := next(alike, None)) is None:
            raise InputError(f"unlearn: example {i} is none of the {waiting.size} that wait")
        free.remove(found)
        slots.append(found)
    return torch.tensor(slots, dtype=torch.int64)


def _require_exact(learner: "CCG", what: str) -> None:
    if learner.config.half_lives:
        raise InputError(f"{what} needs statistics that forget nothing: set half_lives to ()")


def _require_mergeable(learner: "CCG", other: "CCG") -> None:
    if (other.config, other.forgettable) != (learner.config, learner.forgettable):
        raise InputError("merge takes another CCG learner with the same fields")
    forms = (learner.inputs, other.inputs)
    if all(form.shape for form in forms) and forms[0].state() != forms[1].state():
        raise InputError("merge takes a learner of the same kind of inputs")
    if learner.ready and other.ready and not _same(learner.network, other.network):
        raise InputError("merge takes a learner with the same features: copy one once it is ready")


def _same(network: nn.Module, other: nn.Module) -> bool:
    own, given = network.state_dict(), other.state_dict()
    return own.keys() == given.keys() and all(torch.equal(own[name], given[name]) for name in own)
