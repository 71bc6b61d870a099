"""A fitted classifier as one module: raw inputs to probabilities, nothing to update."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepccg.core import InputError
from deepccg.methods import ESMER, ICaRL, NetworkLearner, ProtoCL
from deepccg.methods.deepccg import ClassConditional
from deepccg.methods.head import HeadLearner

IMPOSSIBLE = -math.inf


@dataclass(frozen=True)
class Linear:
    """Logits ``weight (z - centre) + bias``, ``[C]``, of some of a learner's columns.

    Embeddings may lie far from the origin compared with their spread: the centre is taken off
    first, so that no digits are lost.
    """

    centre: Tensor  # [D]
    weight: Tensor  # [C, D]
    bias: Tensor  # [C]

    def module(self, places: Sequence[int], classes: int, dtype: torch.dtype) -> nn.Module:
        """The head with column i at ``places[i]`` of ``classes`` outputs; others are impossible."""
        head = nn.Linear(len(self.centre), classes, dtype=dtype)
        head.weight.data = _placed(self.weight, places, classes, 0.0).to(dtype)
        head.bias.data = _placed(self.bias, places, classes, IMPOSSIBLE).to(dtype)
        return nn.Sequential(_Shift(self.centre.to(dtype)), head)


@dataclass(frozen=True)
class Distances:
    """Logits ``constant - 1/2 sum_d precision_d (z_d - mean_d)^2`` of some of the columns."""

    mean: Tensor  # [C, D]
    precision: Tensor  # [C, D]
    constant: Tensor  # [C]

    def module(self, places: Sequence[int], classes: int, dtype: torch.dtype) -> nn.Module:
        """As ``Linear.module``."""
        return _Quadratic(
            _placed(self.mean, places, classes, 0.0).to(dtype),
            _placed(self.precision, places, classes, 0.0).to(dtype),
            _placed(self.constant, places, classes, IMPOSSIBLE).to(dtype),
        )


class Inference(nn.Module):
    """Raw inputs to probabilities ``[B, K]`` and the most probable column ``[B]``.

    Args:
        learner: What was trained; it is copied.
        places: Where each of the learner's columns stands among the ``classes`` outputs.
        classes: K.
    """

    def __init__(self, learner: NetworkLearner[Any], places: Sequence[int], classes: int) -> None:
        super().__init__()
        network = learner.stable.network if _uses_stable(learner) else learner.network
        self.network = copy.deepcopy(network).cpu().eval().requires_grad_(False)
        self.dtype = learner.dtype
        self.unit = isinstance(learner, ICaRL) or _normalises(learner)
        columns, head = _head(learner)
        module = head.module([places[column] for column in columns], classes, learner.dtype)
        self.head = module.requires_grad_(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``[B, F]``, or images ``[B, H, W, C]``."""
        if x.ndim == 4:
            x = x.permute(0, 3, 1, 2)
        if x.is_floating_point():
            x = x.to(self.dtype)
        z = self.network(x)
        logits = self.head(F.normalize(z, dim=1) if self.unit else z)
        return torch.softmax(logits, dim=1), logits.argmax(dim=1)


def _head(learner: NetworkLearner[Any]) -> tuple[list[int], Linear | Distances]:
    """Which columns are possible, and the classifier of these, in float64 on the CPU."""
    seen = learner.outputs.seen > 0
    if not bool(seen.any()):
        raise InputError("nothing was learned yet: there is no class to predict")
    known = seen
    build: Callable[[Any, Tensor], Linear | Distances]
    if isinstance(learner, ClassConditional):
        known, build = seen & (learner.belief().posterior.count.cpu() > 0), _gaussian
    elif isinstance(learner, ICaRL):
        known, build = seen & learner.means()[1].cpu(), _exemplars
    elif isinstance(learner, ProtoCL):
        build = _prototypes
    elif isinstance(learner, HeadLearner):
        build = _linear
    else:
        raise InputError(f"{type(learner).__name__} predicts under a task only: export another")
    if not bool(known.any()):  # nothing is stored
        known, build = seen, _uniform
    with torch.no_grad():
        return known.nonzero().flatten().tolist(), build(learner, known)


def _gaussian(learner: Any, known: Tensor) -> Linear | Distances:
    """Eq. 8. With one variance for all classes, ``-|z - m_c|^2`` is linear, up to ``|z|^2``."""
    posterior, scale = learner.belief().posterior, _double(learner.belief().scale)
    mean, count = _double(posterior.mean)[known], _double(posterior.count)[known]
    if learner.config.variance == "shared":
        sharpness = scale.square() / (1 + 1 / count.mean())
        centre = mean.mean(dim=0)
        away = mean - centre
        return Linear(centre, sharpness * away, -0.5 * sharpness * away.square().sum(dim=1))
    spread = 1 + 1 / count
    precision = (scale.square() / spread)[:, None].expand_as(mean)
    return Distances(mean, precision, -0.5 * learner.dim * spread.log())


def _exemplars(learner: Any, known: Tensor) -> Distances:
    mean = _double(learner.means()[0])[known]
    return Distances(mean, torch.full_like(mean, 2.0), mean.new_zeros(len(mean)))


def _prototypes(learner: Any, known: Tensor) -> Distances:
    belief = learner.belief()
    spread = _double(belief.prototypes.variance + belief.noise)[known]
    constant = _double(belief.log_share)[known] - 0.5 * spread.log().sum(dim=1)
    return Distances(_double(belief.prototypes.mean)[known], 1 / spread, constant)


def _linear(learner: Any, known: Tensor) -> Linear:
    head = learner.stable.head if _uses_stable(learner) else learner.head
    weight, bias = _double(head.weight)[known], _double(head.bias)[known]
    return Linear(weight.new_zeros(learner.dim), weight, bias)


def _uniform(learner: Any, known: Tensor) -> Linear:
    nothing = torch.zeros(int(known.sum()), learner.dim, dtype=torch.float64)
    return Linear(nothing.new_zeros(learner.dim), nothing, nothing.sum(dim=1))


def _uses_stable(learner: NetworkLearner[Any]) -> TypeGuard[ESMER]:
    return isinstance(learner, ESMER) and learner.config.predict_with == "stable"


def _normalises(learner: NetworkLearner[Any]) -> bool:
    return isinstance(learner, ClassConditional | ProtoCL) and learner.config.normalise


class _Shift(nn.Module):
    def __init__(self, centre: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)

    def forward(self, z: Tensor) -> Tensor:
        return z - self.get_buffer("centre")


class _Quadratic(nn.Module):
    def __init__(self, mean: Tensor, precision: Tensor, constant: Tensor) -> None:
        super().__init__()
        for name, value in (("mean", mean), ("precision", precision), ("constant", constant)):
            self.register_buffer(name, value)

    def forward(self, z: Tensor) -> Tensor:
        mean, precision, constant = (self.get_buffer(n) for n in ("mean", "precision", "constant"))
        away = (z[:, None] - mean).square()
        return constant - 0.5 * (away * precision).sum(dim=2)


def _double(values: Tensor) -> Tensor:
    return values.detach().cpu().double()


def _placed(values: Tensor, places: Sequence[int], classes: int, missing: float) -> Tensor:
    rows = values.new_full((classes, *values.shape[1:]), missing)
    rows[list(places)] = values
    return rows
