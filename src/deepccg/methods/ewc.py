"""Elastic weight consolidation that holds two vectors, however many tasks there were."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from deepccg.core import Batch, Config, Diverged, Holdings, State, StateMismatch, StepInfo
from deepccg.methods.consolidation import Consolidation
from deepccg.methods.head import HeadLearner
from deepccg.methods.losses import Reduction
from deepccg.methods.outputs import Mask
from deepccg.methods.parts import Part
from deepccg.methods.per_example import per_example_gradients, require_separable

CHUNK = 32  # examples whose gradients are held at once


class EWCConfig(Config):
    """Fields of EWC."""

    lr: PositiveFloat = Field(0.1, description="step size")
    reduction: Reduction = Field("mean", description="over the examples of a step: mean or sum")
    train_mask: Mask = Field(
        "task", description="classes an incoming example is compared with: task, seen or all"
    )
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


class Pull(NamedTuple):
    """What every step of a task needs of the tasks before.

    Args:
        changes: How often the past had changed.
        fisher: F of all parameters, in one vector.
        centre: c, the same.
        share: How far the proximal step goes to the centre, for each parameter.
        stiff: Share of the parameters on which the explicit update would diverge.
    """

    changes: int
    fisher: Tensor
    centre: Tensor
    share: list[Tensor]
    stiff: float


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

    def set_up(self, seed: int) -> None:
        """Fisher information and centre of the past tasks."""
        require_separable(self.network)
        super().set_up(seed)
        named = {"network": self.network, "head": self.head}
        self._pull: Pull | None = None  # derived
        self.past = Consolidation(
            {
                f"{part}.{name}": parameter
                for part, module in named.items()
                for name, parameter in module.named_parameters()
                if parameter.requires_grad
            }
        )

    def learn(self, batch: Batch) -> StepInfo:
        """One step on the batch and the penalty."""
        x, y, rows = self.receive(batch)
        mask = self.outputs.mask(self.config.train_mask, rows).to(self.device)
        gradients, loss = self.differentiate(x, y, mask)
        penalty = self.penalty()
        total = loss + penalty
        if not math.isfinite(total):
            raise Diverged(f"the loss is {total} at step {self.steps + 1}: try a smaller lr")
        if self.config.update == "explicit":
            pull = zip(gradients, self.penalty_gradients(), strict=True)
            gradients = [gradient + other for gradient, other in pull]
        self.step(gradients, self.config.lr)
        if self.config.update == "proximal":
            self.pull_to_centre()
        self.steps += 1
        return StepInfo(total, extra={"penalty": penalty, "stiff": self.pull().stiff})

    def differentiate(self, x: Tensor, y: Tensor, mask: Tensor) -> tuple[list[Tensor], float]:
        """Gradients and value of the batch's cross entropy; notes the squares for the Fisher."""
        gradients = [torch.zeros_like(p) for p in self.trained()]
        loss = torch.zeros((), dtype=self.dtype, device=self.device)
        scale = 1 / len(y) if self.config.reduction == "mean" else 1.0
        chunks = (torch.split(whole, CHUNK) for whole in (x, y, mask))
        for some in zip(*chunks, strict=True):
            each, losses = per_example_gradients(self.modules(), *some)
            for gradient, of_examples in zip(gradients, each, strict=True):
                gradient.add_(of_examples.sum(dim=0), alpha=scale)
            loss += scale * losses.sum()
            self.past.note(self.squares(each), len(losses))
        return gradients, float(loss)

    def squares(self, each: Sequence[Tensor]) -> list[Tensor]:
        """Sums over the examples of squared gradients ``[B, *shape]``; ``each`` is overwritten."""
        return [gradients.square_().sum(dim=0) for gradients in each]

    def receive(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """As ``HeadLearner.receive``; new rows of the head are not pulled anywhere."""
        received = super().receive(batch)
        self.past.grow(self.trained())
        return received

    def finish_task(self) -> None:
        """F <- F + F_t; c <- theta*_t, or the average."""
        self.past.close_task(self.trained(), average=self.config.centre == "average")

    def penalty(self) -> float:
        """The value lambda/2 sum_k F_k (theta_k - c_k)^2."""
        pull = self.pull()
        theta = torch.cat([parameter.detach().flatten() for parameter in self.trained()])
        return self.config.strength / 2 * float(pull.fisher @ (theta - pull.centre).square_())

    def penalty_gradients(self) -> list[Tensor]:
        """The penalty's gradient, lambda F (theta - c)."""
        past = zip(self.trained(), self.past.fisher, self.past.centre, strict=True)
        return [
            self.config.strength * fisher * (parameter.detach() - centre)
            for parameter, fisher, centre in past
        ]

    def pull_to_centre(self) -> None:
        """The proximal step; where F is 0 nothing moves."""
        way = zip(self.trained(), self.past.centre, self.pull().share, strict=True)
        for parameter, centre, share in way:
            parameter.detach().lerp_(centre, share)

    def pull(self) -> Pull:
        """What follows from the finished tasks; they change at the end of a task only."""
        if self._pull is None or self._pull.changes != self.past.changes:
            rate = self.config.lr * self.config.strength
            fisher, centre = (
                torch.cat([tensor.flatten() for tensor in tensors])
                for tensors in (self.past.fisher, self.past.centre)
            )
            self._pull = Pull(
                changes=self.past.changes,
                fisher=fisher,
                centre=centre,
                share=[rate * f / (1 + rate * f) for f in self.past.fisher],
                stiff=float((rate * fisher > 2).double().mean()),
            )
        return self._pull

    def parts(self) -> dict[str, Part]:
        """Also the penalty and the task's running Fisher."""
        return {**super().parts(), "past": self.past}

    def holdings(self) -> Holdings:
        """Two vectors of the past, the running Fisher of the present, and what steps need."""
        held = super().holdings()
        sizes = sum(f.numel() * f.element_size() for f in self.past.fisher)
        # What ``pull`` keeps counts before the first step, too: a resumed run tells the same.
        kinds = {"fisher": 2 * sizes, "centre": sizes, "derived": 3 * sizes}
        return Holdings(held.examples, {**held.bytes, **kinds})

    def _matching_parts(self, state: State) -> dict[str, State]:
        found = super()._matching_parts(state)
        for name, tensor in found["past"].tensors.items():
            _, part, parameter = name.split(".", 2)
            if tensor.shape != found[part].tensors[parameter].shape:
                raise StateMismatch(f"the state's {name} does not fit its {part}.{parameter}")
        return found
