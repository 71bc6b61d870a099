"""Whether class-incremental answers depend on what else is asked."""

import math

import torch
from torch import Tensor

from deepccg.core import Learner, make_generator

ASKED_AGAIN = 64  # test images of an evaluation of all tasks, drawn anew for each
_SAME = 1e-4  # of a row's largest score: what another batch size may change by rounding


class Answers:
    """A random part of the images an evaluation asks about, with the scores they got.

    Args:
        images: How many images there are in all.
        seed: The run's.
        number: Of the evaluation.
    """

    def __init__(self, images: int, seed: int, number: int) -> None:
        self._share = ASKED_AGAIN / max(ASKED_AGAIN, images)
        self._generator = make_generator(seed, "audit", str(number))
        self.images: list[Tensor] = []
        self._scores: list[Tensor] = []

    def hear(self, x: Tensor, scores: Tensor) -> None:
        """Keep some of the images ``x [B, ...]`` and their ``scores [B, C]``."""
        count = math.ceil(self._share * len(x))
        for row in torch.randperm(len(x), generator=self._generator)[:count].tolist():
            self.images.append(x[row].clone())
            self._scores.append(scores[row].detach().clone())

    @torch.no_grad()
    def differing(self, learner: Learner) -> int:
        """How many images get another class when asked again, in another order and no task."""
        order = torch.randperm(len(self.images), generator=self._generator)
        first = torch.stack(self._scores)[order]
        again = learner.predict_logits(torch.stack(self.images)[order], None)
        if again.shape != first.shape:
            return len(order)
        other = first.argmax(dim=1) != again.argmax(dim=1)
        return int((other & ~_close(first, again)).sum())


def _close(first: Tensor, again: Tensor) -> Tensor:
    """Whether rows of scores differ by rounding only, ``[B]``: near ties may go either way."""
    finite = first.isfinite()
    values = first.masked_fill(~finite, 0)
    apart = (values - again.masked_fill(~finite, 0)).abs().amax(dim=1)
    return (finite == again.isfinite()).all(dim=1) & (apart <= _SAME * values.abs().amax(dim=1))
