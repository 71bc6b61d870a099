"""Counting what goes through a network, forwards and backwards."""

from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch._C import _functorch  # no public way to see how many examples vmap carries

Phase = Literal["learning", "evaluation", "audit"]
KINDS = ("forward_calls", "forward_images", "backward_calls", "backward_images")


class PassCounter:
    """A forward hook that counts calls and images, by phase.

    It sits on the network that a learner is given. A copy of the network takes the same counter
    along, so that a stable or previous network counts as well; a network that a learner makes
    anew is not counted (but its bytes are). A vectorised pass over single examples
    (``torch.func.vmap``) counts as many images as it carries.
    """

    def __init__(self) -> None:
        self.phase: Phase = "learning"
        self._dim = 1
        self.counts: dict[str, dict[str, int]] = {
            phase: dict.fromkeys(KINDS, 0) for phase in ("learning", "evaluation")
        }

    def attach(self, network: nn.Module, dim: int) -> None:
        """Count what goes through ``network``, ``[B, ...] -> [B, dim]``, and its copies."""
        self._dim = max(1, dim)
        network.register_forward_hook(self)

    def load(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Go on from these counts; refuses others with a ``KeyError`` or ``ValueError``."""
        self.counts = {
            phase: {kind: int(counts[phase][kind]) for kind in KINDS} for phase in self.counts
        }

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        """After a forward; ``output`` is ``[B, D]``."""
        del module, args
        if self.phase == "audit" or not isinstance(output, Tensor):
            return
        plain, differentiated = _unwrapped(output)
        images = plain.numel() // self._dim
        self._count("forward", images)
        if differentiated:  # torch.func.grad: its backward follows at once
            self._count("backward", images)
        elif plain is output and output.requires_grad and torch.is_grad_enabled():
            output.register_hook(lambda _: self._count("backward", images))  # type: ignore[no-untyped-call]  # as in torch

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copied network adds to the same counts

    def _count(self, direction: str, images: int) -> None:
        if self.phase != "audit":
            counts = self.counts[self.phase]
            counts[f"{direction}_calls"] += 1
            counts[f"{direction}_images"] += images


def _unwrapped(tensor: Tensor) -> tuple[Tensor, bool]:
    """The tensor below all transforms of ``torch.func``, and whether one differentiates."""
    differentiated = False
    while _functorch.is_functorch_wrapped_tensor(tensor):
        differentiated |= _functorch.is_gradtrackingtensor(tensor)
        tensor = _functorch.get_unwrapped(tensor)
    return tensor, differentiated
