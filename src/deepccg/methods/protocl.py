"""ProtoCL: Gaussian prototypes with a proper prior and class counts, derived from a coreset."""

from typing import Literal, NamedTuple

import torch
from pydantic import Field, FiniteFloat, PositiveFloat
from torch import Tensor, nn

from deepccg.gaussian import (
    Prototypes,
    log_class_predictive,
    log_prototype_predictive,
    update_prototypes,
)
from deepccg.learners.classes import Mask
from deepccg.learners.conditioned import ConditionedConfig, ConditionedLearner
from deepccg.learners.readout import GaussianReadout, combine
from deepccg.learners.selection import Embedded, Selection, SelectionConfig
from deepccg.learners.state import ModulePart, Part


class ProtoCLConfig(ConditionedConfig):
    """Fields of ProtoCL; what was reconstructed: docs/papers.md."""

    replay_mask: Mask = Field(
        "task", description="classes a replayed example is compared with: its own task, seen or all"
    )
    prior_mean: FiniteFloat = Field(
        0.0, description="mean of every prototype's prior, each dimension"
    )
    prior_variance: PositiveFloat = Field(1.0, description="variance of a prototype's prior")
    prior_count: PositiveFloat = Field(1.0, description="Dirichlet prior: examples of each class")
    noise: Literal["learned", "fixed"] = Field(
        "learned", description="variance around a prototype: learned by the loss, or fixed"
    )
    initial_noise: PositiveFloat = Field(
        0.25, description="where that variance starts, each dimension"
    )
    selector: Literal["reservoir", "random"] = Field(
        "reservoir",
        description="coreset: every example seen of a class equally likely (reservoir), or a "
        "random subset of stored and new ones",
    )
    quota: Literal["fixed", "growing"] = Field(
        "fixed", description="memory shared among all known classes, or among those seen so far"
    )


class Noise(nn.Module):
    """The log variance of an embedding around its prototype, ``[D]``."""

    def __init__(self, dim: int, start: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.full((dim,), start).log())


class Belief(NamedTuple):
    """Where the classes lie, how far examples stray, how common each class is (log, ``[C]``)."""

    prototypes: Prototypes
    noise: Tensor
    log_share: Tensor


class ProtoCL(ConditionedLearner[ProtoCLConfig, Belief]):
    r"""ProtoCL: a Bayesian generative classifier on embeddings that a coreset keeps up to date.

    Class shares are Dirichlet, prototypes mu_c ~ N(m, v I), embeddings z | y ~ N(mu_y, diag s).
    Each step conditions the prototypes on M \ R, and takes one gradient step, in the network and in
    log s, on ``-log p(y | z)`` over batch and R, each example over its own classes A:

        p(y = c | z) = (a + n_c) N(z; m_c, v_c + s) / sum over A of the same,

    with n_c the examples of class c seen before, those of the step left out. The memory is a
    class-balanced random coreset. After the network moved, prototypes are recomputed from it.

    Reference: Kessler et al., "On Sequential Bayesian Inference for Continual Learning", Entropy
    2023. Reconstructed for the online protocol from the method's published description.
    """

    Config = ProtoCLConfig

    def set_up(self, seed: int) -> None:
        """The noise of the embedding, and the coreset's selection."""
        super().set_up(seed)
        self.noise = Noise(self.dim, self.config.initial_noise).to(self.device, self.dtype)
        coreset = SelectionConfig(selector=self.config.selector, quota=self.config.quota)
        self.selection = Selection(coreset, self.memory, self.outputs, self.generator)

    def condition(self, z: Tensor, y: Tensor, scored: Tensor) -> Belief:
        """Prototypes given the stored examples, shares given all examples but those scored."""
        noise = self.noise.log.exp()
        shape = (len(self.outputs), self.dim)
        prior = Prototypes(
            z.new_full(shape, self.config.prior_mean), z.new_full(shape, self.config.prior_variance)
        )
        before = self.outputs.seen.to(scored.device) - torch.bincount(scored, minlength=shape[0])
        log_share = log_class_predictive(before.to(z.dtype), self.config.prior_count)
        return Belief(update_prototypes(prior, z, y, noise), noise, log_share)

    def score(self, z: Tensor, belief: Belief) -> Tensor:
        """Log p(y = c) + log p(z | c), ``[B, C]``; without stored examples, from the prior."""
        return belief.log_share + log_prototype_predictive(z, belief.prototypes, belief.noise)

    def masked_under(self, belief: Belief, scores: Tensor, mask: Tensor) -> Tensor:
        """The allowed classes' scores."""
        del belief
        return scores.masked_fill(~mask, -torch.inf)

    def remember(self, x: Tensor, y: Tensor, rows: Tensor, z: Embedded, belief: Belief) -> None:
        """Offer the batch to the coreset, which asks for embeddings and looks at none."""
        del belief
        self.selection.reselect(x, y, rows, lambda index: z.at(index.position, self.memory.size))

    @torch.no_grad()
    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""
        prototypes, noise, log_share = self.belief()
        variance = (prototypes.variance + noise).double()
        constant = log_share.double() - 0.5 * variance.log().sum(dim=1)
        readout = GaussianReadout(prototypes.mean, 1 / variance, constant)
        return combine(self.network, readout, self.dtype, normalise=self.config.normalise)

    def tell(self, belief: Belief) -> dict[str, float]:
        """The mean variance around a prototype."""
        return {"noise": float(belief.noise.detach().mean())}

    def modules(self) -> list[nn.Module]:
        """The network, and the noise where it is learned."""
        return [self.network, self.noise] if self.config.noise == "learned" else [self.network]

    def parts(self) -> dict[str, Part]:
        """No head: the classifier is derived from network, noise, counts and memory."""
        return {**super().parts(), "noise": ModulePart("noise", self.noise)}
