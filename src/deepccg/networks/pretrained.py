"""A pretrained network as an embedding that never changes, with its preprocessing."""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepccg.core import InputError, StateMismatch
from deepccg.networks.mlp import ModeFreeModule

Layout = Literal["NCHW", "NHWC"]
Interpolation = Literal["bilinear", "bicubic"]

_WEIGHTS = "module."  # where the names of the pretrained weights begin
_DIGEST = "digest"  # name of the buffer that stands for them in a saved state


class PretrainedEncoder(ModeFreeModule):
    """A frozen module and what its inputs need: for ``encoder=``, or as a learner's network.

    Inputs are bytes, which become numbers in [0, 1], or floats in that range. They are resized,
    have the mean subtracted and are divided by the deviation. The module is copied, in evaluation
    mode, and never trained. Saved states hold a digest of weights and preprocessing instead of the
    weights, and another encoder is refused.

    Args:
        module: ``[B, C, H, W]``, or vectors ``[B, F]``, ``-> [B, ...]``; it may have any precision.
        size: Pixels of a side, or ``(height, width)``, that images are resized to, without
            cropping; ``None``: as they come.
        mean: Of each channel (or number of a vector), or one for all.
        std: Likewise.
        layout: ``"NHWC"`` if the module takes channels last.
        interpolation: ``"bilinear"`` or ``"bicubic"``.
        length: The length that every embedding is scaled to; ``None``: as they come.
        name: What files and model cards call it; by default the module's class.

    >>> encoder = PretrainedEncoder(nn.Flatten(), size=4, mean=(0.5, 0.5, 0.5), std=0.25)
    >>> encoder.dim, encoder(torch.full((2, 3, 8, 8), 255, dtype=torch.uint8)).unique().tolist()
    (48, [2.0])
    """

    frozen = True  # the same embedding of an input, always
    mean: Tensor
    std: Tensor
    digest: Tensor  # [16] bytes

    def __init__(
        self,
        module: nn.Module,
        *,
        size: int | tuple[int, int] | None = None,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        layout: Layout = "NCHW",
        interpolation: Interpolation = "bilinear",
        length: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        _check_choices(module, layout, interpolation, length)
        first = next((p for p in module.parameters() if p.is_floating_point()), None)
        self.own_dtype = torch.float32 if first is None else first.dtype
        # Learners read device and precision from the first parameter.
        precision = torch.promote_types(self.own_dtype, torch.float32)
        self.like = nn.Parameter(torch.empty(0, dtype=precision), requires_grad=False)
        self.register_buffer("mean", _channels("mean", mean), persistent=False)
        self.register_buffer("std", _channels("std", std), persistent=False)
        if not bool((self.std > 0).all()):
            raise InputError(f"std is {std!r}: it must be positive")
        self.size = _two_sides(size)
        self.layout, self.interpolation, self.length = layout, interpolation, length
        self.name = type(module).__name__ if name is None else name
        self.module = copy.deepcopy(module).requires_grad_(False).eval()
        self.register_buffer(_DIGEST, self._digest())
        self.dim = 0  # until the shape of an input is known
        if self.size is not None:
            channels = max(self.mean.numel(), self.std.numel())
            self.dim = self._output_size((channels if channels > 1 else 3, *self.size))

    def for_inputs(self, shape: Sequence[int]) -> Self:
        """Return a copy that knows ``dim`` for inputs of ``shape``; with ``size`` it is known."""
        copied = copy.deepcopy(self)
        copied.dim = copied._output_size(shape)
        return copied

    def forward(self, x: Tensor) -> Tensor:
        """``[B, C, H, W]`` or ``[B, F]``, bytes or floats, ``-> [B, D]``."""
        found = self.module(self.preprocessed(x).to(self.own_dtype))
        if not isinstance(found, Tensor):
            raise InputError(
                f"the encoder returns a {type(found).__name__}, not a tensor: wrap it in a module "
                f"that picks one"
            )
        z = found.flatten(1).to(self.like.dtype)
        return z if self.length is None else F.normalize(z) * self.length

    def preprocessed(self, x: Tensor) -> Tensor:
        """Inputs as the module takes them."""
        x = x.to(self.like.dtype) if x.is_floating_point() else x.to(self.like.dtype).div_(255)
        if self.size is not None:
            if x.ndim != 4:
                raise InputError(f"the encoder resizes images, these inputs are {list(x.shape)}")
            x = self._resized(x, self.size)
        channels = max(self.mean.numel(), self.std.numel())
        if x.ndim == 4 and x.shape[1] == 1 < channels:
            x = x.expand(-1, channels, -1, -1)  # grey
        if channels > 1 and x.shape[1] != channels:
            raise InputError(f"mean and std are of {channels} channels, inputs have {x.shape[1]}")
        aligned = (-1, *[1] * (x.ndim - 2))
        x = (x - self.mean.view(aligned)) / self.std.view(aligned)
        return x.permute(0, 2, 3, 1) if self.layout == "NHWC" and x.ndim == 4 else x

    def _resized(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        sides = tuple(x.shape[2:])
        if sides == size:
            return x
        smaller = sides[0] > size[0] or sides[1] > size[1]  # then pixels are averaged
        return F.interpolate(x, size, mode=self.interpolation, antialias=smaller)

    def _output_size(self, shape: Sequence[int]) -> int:
        try:
            with torch.no_grad():
                return int(self(self.like.new_zeros(1, *shape)).shape[1])
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever a user's module raises)
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(
                f"the encoder cannot embed inputs of shape {list(shape)}: {reason}"
            ) from None

    def _digest(self) -> Tensor:
        """16 bytes that stand for weights and preprocessing."""
        found = hashlib.blake2b(digest_size=16)
        settings = (self.size, self.mean.tolist(), self.std.tolist(), self.layout)
        found.update(repr((*settings, self.interpolation, self.length)).encode())
        for name, value in self.module.state_dict().items():
            found.update(repr((name, tuple(value.shape), str(value.dtype))).encode())
            found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return torch.tensor(list(found.digest()), dtype=torch.uint8)

    @property
    def digest_text(self) -> str:
        """The digest in hexadecimal, as model cards have it."""
        return bytes(self.digest.tolist()).hex()

    # A saved state holds no pretrained weight.

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return everything but the pretrained weights."""
        found = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", "") + _WEIGHTS
        for name in [name for name in found if name.startswith(prefix)]:
            del found[name]
        return found

    def check_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse a state that another encoder has saved."""
        saved = tensors.get(_DIGEST)
        if saved is None or not torch.equal(saved.cpu(), self.digest.cpu()):
            raise StateMismatch(
                f"the pretrained encoder {self.name!r} is not the one it was learned with: weights "
                f"or preprocessing differ"
            )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        state_dict |= {
            f"{prefix}{_WEIGHTS}{name}": value for name, value in self.module.state_dict().items()
        }
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _check_choices(module: object, layout: str, interpolation: str, length: float | None) -> None:
    if not isinstance(module, nn.Module):
        raise InputError(f"a pretrained encoder is an nn.Module, not a {type(module).__name__}")
    if layout not in get_args(Layout):
        raise InputError(f"layout is {layout!r}: choose NCHW or NHWC")
    if interpolation not in get_args(Interpolation):
        raise InputError(f"interpolation is {interpolation!r}: choose bilinear or bicubic")
    if length is not None and not length > 0:
        raise InputError(f"length is {length!r}: it must be positive, or None")


def _channels(name: str, value: float | Sequence[float]) -> Tensor:
    found = torch.as_tensor(value, dtype=torch.float32)
    if found.ndim > 1 or not bool(found.isfinite().all()):
        raise InputError(f"{name} is {value!r}: give a number, or one for each channel")
    return found.flatten()


def _two_sides(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise InputError(f"size is {size!r}: give the pixels of a side, or (height, width)")
    return (sides[0], sides[1])
