"""Elastic weight consolidation that holds two vectors, however many tasks there were."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn

from deepccg.core import Batch, Diverged, MemoryUsage, State, StateMismatch, StepInfo
from deepccg.core import Config as MethodConfig
from deepccg.learners.class_table import TrainMask
from deepccg.learners.heads import HeadLearner
from deepccg.learners.optimiser import OptimiserConfig, Reduction
from deepccg.learners.per_sample_gradients import per_sample_gradients, require_separable
from deepccg.learners.state import Stateful


class QuadraticPenalty:
    """What EWC holds of the past, one tensor of each kind per trained parameter.

    Args:
        parameters: What is trained, by name. The first axis may grow; new entries start at 0.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.names = list(parameters)
        self.fisher = [torch.zeros_like(p) for p in parameters.values()]  # F, finished tasks' sum
        self.centre = [torch.zeros_like(p) for p in parameters.values()]  # c
        self.running = [torch.zeros_like(p) for p in parameters.values()]  # this task's squares
        self.examples = 0  # how many are in ``running``
        self.changes = 0  # how often F or c became other numbers

    def grow(self, parameters: Sequence[Tensor]) -> None:
        """Have the shapes of ``parameters``."""
        for tensors in (self.fisher, self.centre, self.running):
            for i, (tensor, parameter) in enumerate(zip(tensors, parameters, strict=True)):
                if tensor.shape != parameter.shape:
                    missing = parameter.new_zeros(len(parameter) - len(tensor), *tensor.shape[1:])
                    tensors[i] = torch.cat([tensor, missing.detach()])
                    self.changes += 1

    def note(self, squares: Sequence[Tensor], examples: int) -> None:
        """Add squared gradients, summed over ``examples`` of the present task."""
        for running, square in zip(self.running, squares, strict=True):
            running += square
        self.examples += examples

    def close_task(self, parameters: Sequence[Tensor], average: bool) -> None:
        """Take the task's Fisher and final parameters in, and begin the next task's."""
        state = zip(self.fisher, self.centre, self.running, parameters, strict=True)
        for fisher, centre, running, parameter in state:
            of_task = running / max(self.examples, 1)
            fisher += of_task
            # The average of theta*_1 ... theta*_t with weights F_1 ... F_t, as a running mean.
            share = (of_task / fisher).nan_to_num(0.0) if average else 1.0
            centre.lerp_(parameter.detach(), share)
            running.zero_()
        self.examples = 0
        self.changes += 1

    def _tensors(self) -> dict[str, Tensor]:
        kinds = {"fisher": self.fisher, "centre": self.centre, "running": self.running}
        return {
            f"{kind}.{name}": tensor
            for kind, tensors in kinds.items()
            for name, tensor in zip(self.names, tensors, strict=True)
        }

    def state(self) -> State:
        """Copies of all tensors, and the count."""
        tensors = {name: tensor.clone() for name, tensor in self._tensors().items()}
        return State(tensors, {"examples": self.examples})

    def check(self, state: State) -> None:
        """Same names and precision, and shapes that differ in the first axis at most."""
        int(state.meta["examples"])
        if state.tensors.keys() != self._tensors().keys():
            raise StateMismatch("the state's penalty is of other parameters")
        for name, own in self._tensors().items():
            other = state.tensors[name]
            if (other.ndim, other.shape[1:], other.dtype) != (own.ndim, own.shape[1:], own.dtype):
                raise StateMismatch(
                    f"the state's {name} is {list(other.shape)} {other.dtype}, "
                    f"this learner's {list(own.shape)} {own.dtype}"
                )

    def load(self, state: State) -> None:
        """Copy the state's values in."""
        self.fisher, self.centre, self.running = (
            [state.tensors[f"{kind}.{name}"].clone() for name in self.names]
            for kind in ("fisher", "centre", "running")
        )
        self.examples = int(state.meta["examples"])
        self.changes += 1


CHUNK = 32  # examples whose gradients are held at once


class EWCConfig(OptimiserConfig):
    """Fields of EWC."""

    reduction: Reduction = Field("mean", description="over the examples of a step: mean or sum")
    train_mask: TrainMask = "task"
    strength: NonNegativeFloat = Field(6.0, description="lambda, the weight of the penalty")
    centre: Literal["last", "average"] = Field(
        "last",
        description="where the penalty pulls to: the parameters at the end of the last task, or "
        "the Fisher-weighted average of those at the end of each task",
    )
    update: Literal["proximal", "explicit"] = Field(
        "proximal",
        description="the penalty's part of a step: exact proximal step, or a gradient step, which "
        "diverges where lr * lambda * F > 2",
    )


class PenaltyTerms(NamedTuple):
    """What every step of a task needs of the tasks before.

    Args:
        changes: How often the past had changed.
        fisher: F of all parameters, in one vector.
        centre: c, the same.
        share: How far the proximal step goes to the centre, for each parameter.
        unstable_share: Share of the parameters on which the explicit update would diverge.
    """

    changes: int
    fisher: Tensor
    centre: Tensor
    share: list[Tensor]
    unstable_share: float


class EWC(HeadLearner[EWCConfig]):
    """EWC, fixed memory: each task's end becomes a quadratic penalty, and penalties are merged.

    With F the sum of the finished tasks' Fisher diagonals and c the centre, a step descends

        mean_B CE(x, y) + lambda/2 sum_k F_k (theta_k - c_k)^2,

    the first term by its gradient g, the second by its exact proximal step:
    ``theta' = theta - lr g``, then ``theta = (theta' + lr lambda F c) / (1 + lr lambda F)``.
    A task's Fisher is the mean over its examples of the squared gradient of CE, each at the
    parameters its batch met: the data are passed once. The mean of the same gradients is g.

    Tasks end where the batches' task changes. Without tasks nothing ends, and this is SGD.

    Reference: Kirkpatrick et al., PNAS 2017; Huszar, "Note on the quadratic penalties in elastic
    weight consolidation", PNAS 2018; the row "EWC" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = EWCConfig

    @classmethod
    def needs_tasks(cls, config: MethodConfig) -> bool:
        """See ``Learner``."""
        del config
        return True

    def build_state(self, seed: int) -> None:
        """Fisher information and centre of the past tasks."""
        require_separable(self.network)
        super().build_state(seed)
        named = nn.ModuleDict({"network": self.network, "head": self.head}).named_parameters()
        self.past = QuadraticPenalty({name: p for name, p in named if p.requires_grad})
        self._terms: PenaltyTerms | None = None  # derived

    def learn(self, batch: Batch) -> StepInfo:
        """One step on the batch and the penalty."""
        x, y, task_idx = self.begin_step(batch)
        mask = self.class_table.mask(self.config.train_mask, task_idx).to(self.device)
        gradients, loss = self.differentiate(x, y, mask)
        penalty = self.penalty()
        total = loss + penalty
        if not math.isfinite(total):
            raise Diverged(f"the loss is {total} at step {self.steps + 1}: try a smaller lr")
        if self.config.update == "explicit":
            pull = zip(gradients, self.penalty_gradients(), strict=True)
            gradients = [gradient + other for gradient, other in pull]
        self.apply_gradients(gradients)
        if self.config.update == "proximal":
            self.pull_to_centre()
        unstable = self.penalty_terms().unstable_share
        return self.end_step(total, extra={"penalty": penalty, "stiff": unstable})

    def differentiate(self, x: Tensor, y: Tensor, mask: Tensor) -> tuple[list[Tensor], float]:
        """Gradients and value of the batch's cross entropy; notes the squares for the Fisher."""
        gradients = [torch.zeros_like(p) for p in self.trainable_parameters()]
        loss = torch.zeros((), dtype=self.dtype, device=self.device)
        scale = 1 / len(y) if self.config.reduction == "mean" else 1.0
        chunks = (torch.split(whole, CHUNK) for whole in (x, y, mask))
        for some in zip(*chunks, strict=True):
            each, losses = per_sample_gradients(self.trainable_modules(), *some)
            for gradient, of_examples in zip(gradients, each, strict=True):
                gradient.add_(of_examples.sum(dim=0), alpha=scale)
            loss += scale * losses.sum()
            self.past.note(self.squares(each), len(losses))
        return gradients, float(loss)

    def squares(self, each: Sequence[Tensor]) -> list[Tensor]:
        """Sums over the examples of squared gradients ``[B, *shape]``; ``each`` is overwritten."""
        return [gradients.square_().sum(dim=0) for gradients in each]

    def begin_step(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """As ``HeadLearner.begin_step``; new rows of the head are not pulled anywhere."""
        received = super().begin_step(batch)
        self.past.grow(self.trainable_parameters())
        return received

    def finish_task(self) -> None:
        """F <- F + F_t; c <- theta*_t, or the average."""
        self.past.close_task(self.trainable_parameters(), average=self.config.centre == "average")

    def penalty(self) -> float:
        """The value lambda/2 sum_k F_k (theta_k - c_k)^2."""
        terms = self.penalty_terms()
        theta = torch.cat([p.detach().flatten() for p in self.trainable_parameters()])
        return self.config.strength / 2 * float(terms.fisher @ (theta - terms.centre).square_())

    def penalty_gradients(self) -> list[Tensor]:
        """The penalty's gradient, lambda F (theta - c)."""
        past = zip(self.trainable_parameters(), self.past.fisher, self.past.centre, strict=True)
        return [
            self.config.strength * fisher * (parameter.detach() - centre)
            for parameter, fisher, centre in past
        ]

    def pull_to_centre(self) -> None:
        """The proximal step; where F is 0 nothing moves."""
        shares = zip(self.past.centre, self.penalty_terms().share, strict=True)
        for parameter, (centre, share) in zip(self.trainable_parameters(), shares, strict=True):
            parameter.detach().lerp_(centre, share)

    def penalty_terms(self) -> PenaltyTerms:
        """What follows from the finished tasks; they change at the end of a task only."""
        if self._terms is None or self._terms.changes != self.past.changes:
            rate = self.optimiser.lr * self.config.strength
            fisher, centre = (
                torch.cat([tensor.flatten() for tensor in tensors])
                for tensors in (self.past.fisher, self.past.centre)
            )
            self._terms = PenaltyTerms(
                changes=self.past.changes,
                fisher=fisher,
                centre=centre,
                share=[rate * f / (1 + rate * f) for f in self.past.fisher],
                unstable_share=float((rate * fisher > 2).double().mean()),
            )
        return self._terms

    def state_parts(self) -> dict[str, Stateful]:
        """Also the penalty and the task's running Fisher."""
        return {**super().state_parts(), "past": self.past}

    def memory_usage(self) -> MemoryUsage:
        """Two vectors of the past, the running Fisher of the present, and what steps need."""
        held = super().memory_usage()
        sizes = sum(fisher.nbytes for fisher in self.past.fisher)
        # What ``penalty_terms`` keeps counts before the first step, as it does after a resume.
        kinds = {"fisher": 2 * sizes, "centre": sizes, "derived": 3 * sizes}
        return MemoryUsage(held.examples, {**held.bytes, **kinds})

    def _validate_state(self, state: State) -> dict[str, State]:
        found = super()._validate_state(state)
        for name, tensor in found["past"].tensors.items():
            _, part, parameter = name.split(".", 2)
            if tensor.shape != found[part].tensors[parameter].shape:
                raise StateMismatch(f"the state's {name} does not fit its {part}.{parameter}")
        return found
