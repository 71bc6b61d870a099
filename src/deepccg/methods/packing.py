"""Which task owns which filter, and which filters a task sees and moves."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from deepccg.core import State, StateMismatch
from deepccg.methods.filters import FilterLayer

Score = Literal["gamma", "taylor", "l1"]

FREE = 0  # owner of the filters that no task has claimed
NOBODY = -1


class Packing:
    """The owner of every filter. Tasks are numbered 1, 2, ... in the order they begin.

    Args:
        layers: The filters.
    """

    def __init__(self, layers: Sequence[FilterLayer]) -> None:
        self.layers = layers
        like = [layer.layer.weight.detach() for layer in layers]
        self.owners = [w.new_zeros(len(w), dtype=torch.int32) for w in like]
        self.importance = [w.new_zeros(len(w)) for w in like]  # of the free filters, this task
        self.tasks: list[int] = []  # each task's row in the learner's table
        self.present = 0  # number of the present task
        self.moving = NOBODY  # whose filters are trained: FREE, those of ``present``, or nobody's
        self.batches = 0  # learned of the present task

    def enter(self, row: int) -> None:
        """A batch of this task comes: if the task is new, its filters are still to be found."""
        new = row not in self.tasks
        if new:
            self.tasks.append(row)
        number = self.tasks.index(row) + 1
        if number != self.present:
            self.present, self.batches = number, 0
            self.moving = FREE if new else NOBODY

    def on(self, row: int) -> list[Tensor]:
        """Filters a task computes with: its own and those before; all while it still chooses."""
        number = self.tasks.index(row) + 1
        if number == self.present and self.moving == FREE:
            return [torch.ones_like(owner, dtype=torch.bool) for owner in self.owners]
        return [(owner != FREE) & (owner <= number) for owner in self.owners]

    def moves(self) -> dict[int, Tensor]:
        """For every parameter, by its ``id``, the filters whose entries may change."""
        return {
            id(parameter): owner == self.moving
            for layer, owner in zip(self.layers, self.owners, strict=True)
            for parameter in layer.parameters
        }

    def scores(self, kind: Score) -> list[Tensor]:
        """What each filter is worth, ``[width]`` for every layer."""
        if kind == "taylor":
            return self.importance
        scores = []
        for layer in self.layers:
            if kind == "gamma" and layer.scale is not None:
                scores.append(layer.scale.detach().abs())
            else:
                scores.append(layer.layer.weight.detach().abs().flatten(1).sum(dim=1))
        return scores

    def weigh(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Add |gradient * weight|, summed over each filter's weights, to its importance.

        The absolute value comes first: behind a norm the size of a filter does not matter, so that
        the products themselves add up to 0.
        """
        of = {id(p): g for p, g in zip(parameters, gradients, strict=True)}
        for layer, importance in zip(self.layers, self.importance, strict=True):
            weight = layer.layer.weight
            if id(weight) in of:
                importance += (of[id(weight)] * weight.detach()).abs().flatten(1).sum(dim=1)

    def free_share(self) -> float:
        """Share of all filters that no task owns; 0 if there are no filters."""
        if not self.owners:
            return 0.0
        return float((torch.cat(self.owners) == FREE).double().mean())

    def claim(self, scores: Sequence[Tensor], share: float, generator: torch.Generator) -> None:
        """Give the best free filters of each layer to the present task; draw the rest anew.

        Of equal scores the first counts as better. Filters that never moved stay as they are.
        """
        for layer, owner, score in zip(self.layers, self.owners, scores, strict=True):
            free = (owner == FREE).nonzero().flatten()
            order = torch.sort(score[free], descending=True, stable=True).indices
            count = claimed(len(free), share)
            owner[free[order[:count]]] = self.present
            if self.batches:
                layer.redraw(free[order[count:]], generator)
        for importance in self.importance:
            importance.zero_()
        self.moving = self.present

    def _tensors(self) -> dict[str, Tensor]:
        names = [layer.name for layer in self.layers]
        owners = zip(names, self.owners, strict=True)
        importance = zip(names, self.importance, strict=True)
        return {f"owner.{n}": t for n, t in owners} | {f"importance.{n}": t for n, t in importance}

    def state(self) -> State:
        """Owners and importance of every filter, and where the present task is."""
        meta = {
            "tasks": list(self.tasks),
            "present": self.present,
            "moving": self.moving,
            "batches": self.batches,
        }
        return State({name: tensor.clone() for name, tensor in self._tensors().items()}, meta)

    def check(self, state: State) -> None:
        """The same filters, owned by tasks that are known."""
        own = {name: (t.shape, t.dtype) for name, t in self._tensors().items()}
        if own != {name: (t.shape, t.dtype) for name, t in state.tensors.items()}:
            raise StateMismatch("the state's filters are not this network's")
        tasks, present = len(state.meta["tasks"]), int(state.meta["present"])
        owners = [t for name, t in state.tensors.items() if name.startswith("owner.")]
        known = all(bool(((owner >= 0) & (owner <= tasks)).all()) for owner in owners)
        moving = int(state.meta["moving"])
        if not known or not 0 <= present <= tasks or moving not in (NOBODY, FREE, present):
            raise StateMismatch("the state's filters belong to tasks it does not know")
        int(state.meta["batches"])

    def load(self, state: State) -> None:
        """Copy the state's values in."""
        for name, tensor in self._tensors().items():
            tensor.copy_(state.tensors[name])
        self.tasks = [int(row) for row in state.meta["tasks"]]
        self.present, self.moving = int(state.meta["present"]), int(state.meta["moving"])
        self.batches = int(state.meta["batches"])


def claimed(free: int, share: float) -> int:
    """How many of a layer's ``free`` filters a task takes: a share, at least one while there is.

    >>> [claimed(free, 0.3) for free in (10, 7, 5, 3, 2, 1, 0)]
    [3, 2, 2, 1, 1, 1, 0]
    """
    return min(free, max(1, round(share * free)))
