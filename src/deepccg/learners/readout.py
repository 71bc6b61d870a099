"""Classifiers on embeddings as modules that need no learner, for export."""

import copy
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepccg.gaussian import Posterior, RunningClassifier, Variance


class LinearReadout(nn.Module):
    """Logits ``weight (z - centre) + bias``, ``[B, D] -> [B, C]``.

    Subtracting the centre first keeps the digits of embeddings that lie far from the origin.
    """

    weight: Tensor  # [C, D]
    bias: Tensor  # [C]
    centre: Tensor  # [D]

    def __init__(self, weight: Tensor, bias: Tensor, centre: Tensor) -> None:
        super().__init__()
        _register(self, weight=weight, bias=bias, centre=centre)

    def forward(self, z: Tensor) -> Tensor:
        """``[B, D] -> [B, C]``."""
        return F.linear(z - self.centre, self.weight, self.bias)


class GaussianReadout(nn.Module):
    """Logits ``constant_c - 1/2 sum_d precision_cd (z_d - mean_cd)^2``, ``[B, D] -> [B, C]``."""

    mean: Tensor  # [C, D]
    precision: Tensor  # [C, D]
    constant: Tensor  # [C]

    def __init__(self, mean: Tensor, precision: Tensor, constant: Tensor) -> None:
        super().__init__()
        _register(self, mean=mean, precision=precision, constant=constant)

    def forward(self, z: Tensor) -> Tensor:
        """``[B, D] -> [B, C]``."""
        return self.constant - 0.5 * ((z[:, None] - self.mean).square() * self.precision).sum(dim=2)


class StudentTReadout(nn.Module):
    """Logits ``constant_c - power log(1 + |z - mean_c|^2 / spread_c)``, lengths by ``inverse``."""

    inverse: Tensor  # [D, D]
    weight: Tensor  # inverse times the centred means, [C, D]
    square: Tensor  # squared lengths of the centred means, [C]
    centre: Tensor  # [D]
    spread: Tensor  # [C]
    constant: Tensor  # [C]

    def __init__(self, power: float, **tensors: Tensor) -> None:
        super().__init__()
        self.power = power
        _register(self, **tensors)

    def forward(self, z: Tensor) -> Tensor:
        """``[B, D] -> [B, C]``."""
        offset = z - self.centre
        own = ((offset @ self.inverse) * offset).sum(dim=1, keepdim=True)
        distance = (own - 2 * F.linear(offset, self.weight) + self.square).clamp(min=0)
        return self.constant - self.power * torch.log1p(distance / self.spread)


class MixtureReadout(nn.Module):
    """Logits of several readouts' probabilities, averaged by how far each is trusted."""

    trust: Tensor  # log weights, [K, C]

    def __init__(self, readouts: Sequence[nn.Module], trust: Tensor) -> None:
        super().__init__()
        self.readouts = nn.ModuleList(readouts)
        _register(self, trust=trust)

    def forward(self, z: Tensor) -> Tensor:
        """``[B, D] -> [B, C]``."""
        logits = torch.stack([readout(z) for readout in self.readouts], dim=2)
        return (logits.log_softmax(dim=1) + self.trust.T).logsumexp(dim=2)


class _UnitLength(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return F.normalize(z, dim=1)


def combine(
    network: nn.Module, readout: nn.Module, dtype: torch.dtype, *, normalise: bool = False
) -> nn.Module:
    """Return a copy of the network with a readout as one module, ``[B, ...] -> [B, C]``."""
    embedding = [copy.deepcopy(network).cpu(), *([_UnitLength()] if normalise else [])]
    return nn.Sequential(*embedding, readout.to(dtype)).eval().requires_grad_(False)


@torch.no_grad()
def class_conditional_readout(posterior: Posterior, scale: Tensor, variance: Variance) -> nn.Module:
    """Return the predictive density of each class (Eq. 8) as a module.

    With one variance for all classes ``-|z - m_c|^2`` is linear in z, up to ``|z|^2``.
    """
    mean, count, precision = posterior.mean.double(), posterior.count.double(), scale.double() ** 2
    known = count > 0
    if variance == "shared":
        classes = known.sum().clamp(min=1)
        precision = precision / (1 + classes / count.sum())  # 0 if nothing is stored
        centre = mean[known].sum(dim=0) / classes
        bias = -0.5 * precision * (mean - centre).square().sum(dim=1)
        return LinearReadout(precision * (mean - centre), only_known(bias, known), centre)
    spread = torch.where(known, 1 + 1 / count, 1.0)
    constant = only_known(-0.5 * mean.shape[1] * spread.log(), known)
    return GaussianReadout(mean, (precision / spread)[:, None].expand_as(mean), constant)


@torch.no_grad()
def shared_covariance_readout(classifier: RunningClassifier) -> nn.Module:
    """Return class-conditional Gaussians with a shared covariance as a module."""
    scores = classifier.scores()
    share = scores.count.log() if classifier.observed else torch.zeros_like(scores.count)
    known = scores.count > 0
    if not classifier.student_t:
        weight, bias = (
            scores.precision * scores.weight,
            share - scores.precision * scores.square / 2,
        )
        return LinearReadout(weight, only_known(bias, known), scores.centre)
    if scores.inverse is None:  # the predictive needs it, and so does every prediction
        raise ValueError("the inverse was not kept")
    spread = torch.where(known, 1 + 1 / scores.count, 1.0)
    dim = len(scores.centre)
    return StudentTReadout(
        (scores.prior.strength + scores.prior.freedom + 2 + dim) / 2,
        inverse=scores.inverse * scores.unit,
        weight=scores.weight * scores.unit,
        square=scores.square * scores.unit,
        centre=scores.centre,
        spread=spread,
        constant=only_known(share - dim / 2 * spread.log(), known),
    )


def only_known(logit: Tensor, known: Tensor) -> Tensor:
    """Return ``logit [C]`` with -inf where a class is not known; all alike where none is."""
    return logit.masked_fill(~known, -math.inf) if bool(known.any()) else torch.zeros_like(logit)


def _register(module: nn.Module, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor.detach().cpu().double())
