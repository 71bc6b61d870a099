"""Each native kernel on ten embeddings, next to what PyTorch computes."""

from collections.abc import Iterator

import torch
from torch import Tensor

from deepccg.core.compile import Check, Kernel, KernelLibrary
from deepccg.gaussian.posterior import (
    Variance,
    class_posterior,
    log_predictive_density,
    squared_distances,
)

Compared = tuple[list[Tensor], list[Tensor]]  # results, and the expected ones


def self_test(library: KernelLibrary) -> Iterator[Check]:
    """Yield for each kernel its name, its results and the expected ones."""
    count = torch.arange(30, device="cpu")
    numbers = (count * count * 37 % 101 / 50 - 1).view(10, 3)  # irregular, in [-1, 1]
    y = torch.tensor([0, 1, 3, 1, 3, 1, 3, 0, 3, 1], device="cpu")  # of four classes
    for suffix, dtype in (("float32", torch.float32), ("float64", torch.float64)):
        z = numbers.to(dtype)
        yield f"centre_{suffix}", *_centre(library[f"centre_{suffix}"], z, y)
        for shared in (True, False):
            kernel = library[f"likelihood_{suffix}"]
            yield f"likelihood_{suffix}", *_likelihood(kernel, z, y, shared)
        yield f"exchange_{suffix}", *_exchange(library[f"exchange_{suffix}"], z, y)


def _centre(kernel: Kernel, z: Tensor, y: Tensor) -> Compared:
    mean, count, deviation = z.new_empty(4, 3), z.new_empty(4), torch.empty_like(z)
    kernel(z=z, y=y, mean=mean, count=count, deviation=deviation, rows=10, classes=4, dim=3)
    right = class_posterior(z, y, 4)
    return [mean, count, deviation], [right.mean, right.count, z - right.mean[y]]


def _likelihood(kernel: Kernel, z: Tensor, y: Tensor, shared: bool) -> Compared:
    """With a class of no examples, and classes that the mask leaves out."""
    mean, count = z[:4] + 0.5, z.new_tensor([2, 5, 0, 1.5])
    mask = y.new_tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool().repeat(5, 1)
    log_prob, gradient, valid = z.new_empty(10), torch.empty_like(z), torch.empty_like(y).bool()
    kernel(
        z=z, mean=mean, count=count, mask=mask, y=y, log_prob=log_prob, gradient=gradient,
        valid=valid, scale=1.5, shared=shared, rows=10, classes=4, dim=3, mask_stride=4,
    )  # fmt: skip
    z = z.detach().requires_grad_()
    variance: Variance = "shared" if shared else "per-class"
    distance = squared_distances(z, mean) * 1.5**2
    density = log_predictive_density(distance, count, mask, 3, variance)
    own = density.gather(1, y[:, None]).squeeze(1)
    right_valid = own.isfinite()  # of the others two are known in every row
    right = (own - density.logsumexp(dim=1))[right_valid]
    (right_gradient,) = torch.autograd.grad(right.sum(), z)
    return [valid, log_prob[right_valid], gradient], [right_valid, right, right_gradient]


def _exchange(kernel: Kernel, z: Tensor, y: Tensor) -> Compared:
    """Of classes 1 and 3, with six stored examples whose embeddings lie in another order."""
    stored, quota = 6, {1: 2, 3: 1}
    row, seen = y.new_tensor(range(9, -1, -1)), {1: 7.0, 3: -1.0}
    evicted, admitted, n_changed = (y.new_empty(n) for n in (6, 4, 2))
    kernel(
        z=z, row=row, y=y, class_index=y.new_tensor([-1, 0, -1, 1]),
        quota=y.new_tensor([*quota.values()]), seen=z.new_tensor([*seen.values()]).double(),
        key=z.new_zeros(2, 4).float(), evicted=evicted, admitted=admitted, n_changed=n_changed,
        pool=10, stored=stored, classes=2, candidates=4, dim=3,
    )  # fmt: skip
    leaves, enters = [], []
    for label in (1, 3):
        own = torch.nonzero(y == label).flatten().tolist()
        share = max(seen[label], 0) / sum(i < stored for i in own) or 1.0
        weight = z.new_tensor([share if i < stored else 1.0 for i in own])
        keep = _greedy(z[row[own]], weight, quota[label])
        leaves += [i for at, i in enumerate(own) if i < stored and at not in keep]
        enters += [i - stored for at, i in enumerate(own) if i >= stored and at in keep]
    counts = y.new_tensor([len(leaves), len(enters)])
    results = [n_changed, evicted[: len(leaves)], admitted[: len(enters)]]
    return results, [counts, y.new_tensor(leaves), y.new_tensor(enters)]


def _greedy(z: Tensor, weight: Tensor, quota: int) -> list[int]:
    """What is left when the mean is kept nearest to the weighted mean of all (Eq. 10)."""
    target = weight @ z / weight.sum()
    keep = list(range(len(z)))
    while len(keep) > quota:
        rest = [[i for i in keep if i != leaving] for leaving in keep]
        keep = min(rest, key=lambda some: float((z[some].mean(dim=0) - target).norm()))
    return keep
