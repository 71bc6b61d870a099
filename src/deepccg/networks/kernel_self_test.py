"""Each native kernel on a few tiny images, next to plain formulas in double precision.

In one thread: the first use may come before a process forks, and OpenMP's threads do not survive
that. PyTorch's own convolution and norm start such threads for images of any size.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from deepccg.core.compile import Check, KernelLibrary

_EPSILON = 0.1  # large enough to matter
_BATCH = 16  # whole registers of every processor


def self_test(library: KernelLibrary) -> Iterator[Check]:
    """Yield for each kernel its name, its results and the expected ones."""
    for stride in (2, 1):
        yield from _convolution(library, stride)
    yield from _instance_norm(library)


def _convolution(library: KernelLibrary, stride: int) -> Iterator[Check]:
    """Of 5 x 6 pixels with a 3 x 3 kernel and padding 1: all that has an edge."""
    x, weight = _numbers(1, 5, 6, 2, _BATCH), _numbers(2, 3, 2, 3, 3)
    height, width = 6 // stride - stride % 2, 6 // stride
    gradient = _numbers(3, height, width, 3, _BATCH)
    sizes = library.sizes("ConvolutionSizes")(
        height=5, width=6, inputs=2, out_height=height, out_width=width, outputs=3,
        kernel=3, stride=stride, padding=1, batch=_BATCH,
    )  # fmt: skip
    exact, exact_weight = _batch_first(x).requires_grad_(), weight.double().requires_grad_()
    patches = F.pad(exact, (1, 1, 1, 1)).unfold(2, 3, stride).unfold(3, 3, stride)
    expected = torch.einsum("bihwkl,oikl->bohw", patches, exact_weight)
    products = (expected * _batch_first(gradient)).sum(dim=(1, 2, 3))
    inputs = exact, exact_weight
    x_gradient, weight_gradient = torch.autograd.grad(products.sum(), inputs, retain_graph=True)
    each = [
        torch.autograd.grad(product, exact_weight, retain_graph=True)[0] for product in products[:3]
    ]

    y = torch.empty_like(gradient)
    library["convolve"](sizes=sizes, images=x, weights=weight, results=y, threads=1)
    yield "convolve", [_batch_first(y)], [expected]

    result = torch.empty_like(x)
    library["convolve_images_gradient"](
        sizes=sizes, gradient=gradient, weights=weight, images_gradient=result, threads=1
    )
    yield "convolve_images_gradient", [_batch_first(result)], [x_gradient]

    for samples, right in ((-1, weight_gradient), (3, torch.stack(each))):
        result = x.new_empty(right.shape)
        library["convolve_weights_gradient"](
            sizes=sizes, images=x, gradient=gradient, weights_gradient=result, samples=samples,
            threads=1,
        )  # fmt: skip
        yield "convolve_weights_gradient", [result], [right]


def _instance_norm(library: KernelLibrary) -> Iterator[Check]:
    """With everything that is optional."""
    x, residual, gradient = (_numbers(seed, 3, 2, 5, _BATCH) for seed in (1, 2, 3))
    weight, bias = _numbers(4, 5) + 2, _numbers(5, 5)
    sizes = library.sizes("NormSizes")(pixels=6, channels=5, batch=_BATCH)
    exact = [
        each.requires_grad_()
        for each in (_batch_first(x), weight.double(), bias.double(), _batch_first(residual))
    ]
    exact_x, exact_weight, exact_bias, exact_residual = exact
    variance, mean = torch.var_mean(exact_x, dim=(2, 3), correction=0, keepdim=True)
    inverse = (variance + _EPSILON).rsqrt()
    normed = (exact_x - mean) * inverse
    scaled = normed * exact_weight[:, None, None] + exact_bias[:, None, None]
    expected = (scaled + exact_residual).relu()
    right = torch.autograd.grad((expected * _batch_first(gradient)).sum(), exact)
    per_sample = [(right[3] * factor).sum(dim=(2, 3)).T for factor in (normed, 1)]
    right_moments = [part.flatten(1).T for part in (mean, inverse)]

    y, moments = torch.empty_like(x), x.new_empty(2, 5, _BATCH)
    library["instance_norm"](
        sizes=sizes, x=x, weight=weight, bias=bias, residual=residual, y=y, moments=moments,
        epsilon=_EPSILON, relu=True, threads=1,
    )  # fmt: skip
    yield "instance_norm", [_batch_first(y), *moments], [expected, *right_moments]

    of_x, of_residual = torch.empty_like(x), torch.empty_like(x)
    of_weight, of_bias, of_samples = (torch.empty_like(part) for part in (weight, bias, moments))
    library["instance_norm_gradient"](
        sizes=sizes, gradient=gradient, x=x, y=y, weight=weight, moments=moments,
        x_gradient=of_x, residual_gradient=of_residual, sample_gradients=of_samples,
        weight_gradient=of_weight, bias_gradient=of_bias, threads=1,
    )  # fmt: skip
    found = [_batch_first(of_x), of_weight, of_bias, _batch_first(of_residual)]
    yield "instance_norm_gradient", [*found, *of_samples], [*right, *per_sample]


def _numbers(seed: int, *shape: int) -> Tensor:
    """Irregular numbers in [-1, 1], the same on every machine and without a generator."""
    count = torch.arange(torch.Size(shape).numel(), device="cpu") + seed
    return ((count * count * 37 + seed * count) % 101 / 50 - 1).float().view(shape)


def _batch_first(x: Tensor) -> Tensor:
    """``[H, W, C, B] -> [B, C, H, W]``, in double precision."""
    return x.double().permute(3, 2, 0, 1).contiguous()
