"""Gradients of each image by itself, where a backward pass can give them at no further cost."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Noted:
    """Gradients of parameters for each image by itself, by the parameter's ``id``.

    Args:
        count: Images, without those that fill up.
        gradients: ``[count, *shape]`` for each parameter.
    """

    count: int
    gradients: dict[int, Tensor] = field(default_factory=dict)

    def add(self, key: int, gradient: Tensor) -> None:
        """Note one; those of a parameter that is used twice are added."""
        known = self.gradients.get(key)
        self.gradients[key] = gradient if known is None else known + gradient


_noted: ContextVar[Noted | None] = ContextVar("noted", default=None)


@contextmanager
def noting_each(count: int) -> Iterator[dict[int, Tensor]]:
    """What is computed within it, from ``count`` images, has its parameters' gradients ``Noted``.

    They are noted by the backward pass, which gives the parameters themselves none.
    """
    noted = Noted(count)
    token = _noted.set(noted)
    try:
        yield noted.gradients
    finally:
        _noted.reset(token)


def present_notes() -> Noted | None:
    """Where what is computed now is to be noted."""
    return _noted.get()
