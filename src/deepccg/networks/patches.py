"""Fixed features of images: responses to whitened patches of the first images."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from deepccg.core import InputError
from deepccg.networks.fixed import LARGEST, FixedFeatures, known_deviation
from deepccg.networks.mlp import as_float

SAMPLED = 20_000  # patches that whitening and dictionary are made from
LONGEST = 4096  # numbers of a patch: whitening takes their cube
FLOOR = 0.1  # added to variances of pixels and of whitened directions, where a deviation is 1
CONTRAST = 0.01  # variance below which a patch is blank, and no filter
SHORT_SIDE = 40  # pixels; images whose shorter side is much longer are shrunk to about this
AT_ONCE = 1_000_000  # responses computed at once: they stay in the cache


class Patches(FixedFeatures):
    """Patches of an image compared with those of a dictionary, ``[B, C, H, W] -> [B, D]``.

    After Coates, Lee & Ng, "An analysis of single-layer networks in unsupervised feature learning",
    AISTATS 2011. A patch u is normalised, ``n(u) = (u - mean u) / sqrt(var u + 0.1)``, and
    whitened, ``V (n - m)``, with m the mean and ``V = (cov + 0.1)^-1/2`` of patches of the first
    images. The filters d_j are some of those patches, whitened and of unit length. Features are

        sqrt( mean over a cell of max(0, +-a_j - threshold) ),   a_j = d_j' V (n(u) - m),

    the mean being over the patches of each of grid x grid cells: D = 2 filters grid^2.
    ``a_j = w_j' u / sqrt(var u + 0.1) - b_j`` is one convolution, with w_j = V d_j less its mean.

    With ``mirror``, features are those of an image and of its mirror image, averaged before the
    root. As the dictionary then has the mirror image of each filter, one convolution has both: what
    a filter finds in the mirror image is what its own mirror image finds, in the mirrored cell.

    Larger images are first shrunk by a whole factor to about 40 pixels, so that patches show as
    much of what is in them as they do of small images.

    Args:
        shape: ``[C, H, W]``.
        filters: Of the dictionary; with ``mirror``, each has a mirror image besides.
        side: Pixels of a patch's side.
        grid: Cells along each side.
        threshold: Responses below it count nothing.
        mirror: Whether an image and its mirror image have the same features.
    """

    weight: Tensor  # w, [filters, C, side, side]
    bias: Tensor  # b, [filters]
    scale: Tensor  # [], standard deviation of the pixels of an image
    rows: Tensor  # [H / factor, H], ones where pixels are averaged to shrink
    columns: Tensor  # [W / factor, W]
    patch_rows: Tensor  # [h, H / factor], ones where a patch lies
    patch_columns: Tensor  # [w, W / factor]
    cells: Tensor  # [h w, grid^2], ones for the patches of a cell

    def __init__(
        self,
        shape: Sequence[int],
        filters: int = 100,
        side: int = 6,
        grid: int = 2,
        threshold: float = 0.5,
        mirror: bool = True,
    ) -> None:
        _check_shape(shape, side, grid)
        super().__init__(2 * filters * grid**2)
        self.shape, self.side, self.grid = tuple(shape), side, grid
        self.threshold, self.mirror = threshold, mirror
        self.register_buffer("weight", torch.zeros(filters, shape[0], side, side))
        self.register_buffer("bias", torch.zeros(filters))
        self.register_buffer("scale", torch.ones(()))
        height, width = _shrunk(shape)
        constant = {
            "rows": _even_ranges(shape[1], height),
            "columns": _even_ranges(shape[2], width),
            "patch_rows": _windows(height, side),
            "patch_columns": _windows(width, side),
        }
        down, across = height - side + 1, width - side + 1
        constant["cells"] = torch.kron(_even_ranges(down, grid), _even_ranges(across, grid)).T
        for name, matrix in constant.items():
            self.register_buffer(name, matrix, persistent=False)
        self.chunk = max(1, AT_ONCE // ((1 + mirror) * filters * down * across))

    def check_inputs(self, x: Tensor) -> None:
        """Reject images of another shape."""
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(
                f"these features are of images {list(self.shape)}, the inputs are "
                f"{list(x.shape[1:])}"
            )

    # Fitting

    def fit_features(self, x: Tensor, generator: torch.Generator) -> None:
        """Make the dictionary from random patches of the images, in double precision."""
        images = self._centred(as_float(x, torch.float64).double())
        scale = known_deviation(images.square().mean().sqrt(), x.abs().max())
        patches = _random_patches((images / scale).clamp(-LARGEST, LARGEST), self.side, generator)
        variance = patches.var(dim=1, correction=0, keepdim=True)
        patches = (patches - patches.mean(dim=1, keepdim=True)) / (variance + FLOOR).sqrt()
        mean, whitening = self._whitening(patches)
        useful = patches[variance.squeeze(1) > CONTRAST]
        filters = self._directions((useful - mean) @ whitening, generator) @ whitening
        self.scale.copy_(scale)
        self.bias.copy_(filters @ mean)
        self.weight.copy_((filters - filters.mean(dim=1, keepdim=True)).view_as(self.weight))

    def _whitening(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``[P]`` and whitening ``[P, P]`` of normalised patches, and of their mirror images.

        Whitening that commutes with mirroring turns the mirror image of a patch into the mirror
        image of its filter.
        """
        if self.mirror:
            turned = patches.view(-1, *self.weight.shape[1:]).flip(3).flatten(1)
            patches = torch.cat([patches, turned])
        mean = patches.mean(dim=0)
        centred = patches - mean
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(patches))
        return mean, (vectors * (values.clamp(min=0) + FLOOR).rsqrt()) @ vectors.T

    def _directions(self, whitened: Tensor, generator: torch.Generator) -> Tensor:
        """The first of the patches at unit length, ``[filters, P]``; random ones if too few."""
        missing = max(0, len(self.weight) - len(whitened))
        size = (missing, whitened.shape[1])
        more = torch.randn(size, generator=generator, dtype=whitened.dtype)
        return F.normalize(torch.cat([whitened, more])[: len(self.weight)], dim=1)

    # Features

    def features(self, x: Tensor) -> Tensor:
        """See above, ``[B, C, H, W] -> [B, D]``, a chunk at a time."""
        if torch.compiler.is_compiling() or len(x) <= self.chunk:
            return self._roots(x)
        return torch.cat([self._roots(part) for part in torch.split(x, self.chunk)])

    def _roots(self, x: Tensor) -> Tensor:
        dtype = self.weight.dtype
        images = self._centred(as_float(x, dtype).to(dtype)) / self.scale
        response = self._responses(images.clamp(-LARGEST, LARGEST))
        bias = self.bias.repeat(2) if self.mirror else self.bias
        above = (response - (bias + self.threshold)[:, None, None]).relu_()
        below = ((bias - self.threshold)[:, None, None] - response).relu_()
        pooled = torch.stack([self._pooled(above), self._pooled(below)], dim=1)
        return pooled.sqrt().flatten(1)

    def _centred(self, x: Tensor) -> Tensor:
        """Shrink images and subtract from each its mean, which keeps the digits of the variance."""
        if x.shape[2:] != (len(self.rows), len(self.columns)):
            rows, columns = self.rows.to(x), self.columns.to(x)
            count = rows.sum(dim=1)[:, None] * columns.sum(dim=1)
            x = rows @ x @ columns.T / count
        return x - x.mean(dim=(1, 2, 3), keepdim=True)

    def _responses(self, images: Tensor) -> Tensor:
        """``w_j' u / sqrt(var u + 0.1)`` of every patch, ``[B, filters, h, w]``."""
        filters = torch.cat([self.weight, self.weight.flip(3)]) if self.mirror else self.weight
        # Mean and mean square of each patch: sums over a window, of rows and then of columns.
        moments = torch.stack([images.mean(dim=1), images.square().mean(dim=1)])
        mean, square = self.patch_rows @ moments @ self.patch_columns.T / self.side**2
        variance = (square - mean.square()).clamp(min=0)
        return F.conv2d(images, filters).mul_((variance + FLOOR).rsqrt().unsqueeze(1))

    def _pooled(self, response: Tensor) -> Tensor:
        """Means over the cells, ``[B, filters, h, w] -> [B, filters, grid^2]``."""
        pooled: Tensor = response.flatten(2) @ self.cells / self.cells.sum(dim=0)
        if not self.mirror:
            return pooled
        cells = (2, len(self.weight), self.grid, self.grid)
        own, turned = pooled.view(-1, *cells).unbind(dim=1)  # any batch size: it may be exported
        return ((own + turned.flip(3)) / 2).flatten(2)


def _check_shape(shape: Sequence[int], side: int, grid: int) -> None:
    """Reject inputs that have no such patches, or none for each cell."""
    if len(shape) != 3:
        raise InputError(
            f"patches are of images, this data is {list(shape)}: use network.kind=fourier"
        )
    smallest = min(_shrunk(shape))
    if smallest < side + grid - 1:
        raise InputError(
            f"images {list(shape)} are too small for patches of {side} x {side} pixels in "
            f"{grid} x {grid} cells: lower network.patch_side or network.grid, or use "
            f"network.kind=fourier"
        )
    if shape[0] * side**2 > LONGEST:
        raise InputError(
            f"patches of {shape[0]} x {side} x {side} numbers are too large, {LONGEST} are "
            f"allowed: lower network.patch_side"
        )


def _shrunk(shape: Sequence[int]) -> tuple[int, int]:
    """Height and width of the images that patches are taken of."""
    factor = max(1, round(min(shape[1:]) / SHORT_SIDE))
    return math.ceil(shape[1] / factor), math.ceil(shape[2] / factor)


def _even_ranges(size: int, parts: int) -> Tensor:
    """``[parts, size]`` with ones where a part lies.

    Parts mirror each other, and share a row where ``size`` is no multiple of ``parts``.
    """
    ranges = torch.zeros(parts, size)
    for part in range(parts):
        ranges[part, part * size // parts : -(-(part + 1) * size // parts)] = 1
    return ranges


def _windows(size: int, side: int) -> Tensor:
    """``[size - side + 1, size]`` with ones where a window of ``side`` lies."""
    windows = torch.zeros(size - side + 1, size)
    for start in range(len(windows)):
        windows[start, start : start + side] = 1
    return windows


def _random_patches(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Different patches of images ``[N, C, H, W]`` in random order, ``[n, C side^2]``."""
    every = images.unfold(2, side, 1).unfold(3, side, 1)  # [N, C, h, w, side, side], a view
    count, _, down, across = every.shape[:4]
    drawn = torch.randperm(count * down * across, generator=generator)[:SAMPLED]
    image, place = drawn // (down * across), drawn % (down * across)
    return every[image, :, place // across, place % across].flatten(1)
