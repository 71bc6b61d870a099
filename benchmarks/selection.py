"""How near the selectors come to the best subset, and what they cost.

    python benchmarks/selection.py

Each of K classes has N candidates, m of which are kept so that their mean is nearest a target: the
mean of all candidates (as printed), or of the 50 examples that the stored ones stand for together
with the new ones (evidence). The best subset is found by enumeration. Embeddings are Gaussian in 80
dimensions with a spectrum that falls like that of pooled features. Distances are relative to the
smallest possible: 1.00 is exact. Times are CPU time for the classes of one step (K = 5), one
thread, the median of many calls.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from deepccg.gaussian import (
    Candidates,
    LassoConfig,
    greedy_selection,
    lasso_selection,
    selection_objective,
    swap_selection,
)
from deepccg.memory import balanced_random

Selector = Callable[[Candidates, torch.Generator], Tensor]

DIM, SEEN, STEP_CLASSES = 80, 50, 5
SIZES = ((11, 10), (12, 10), (15, 10), (20, 10), (20, 15))


def lasso(candidates: Candidates, generator: torch.Generator) -> Tensor:
    """As published, with the defaults of the method."""
    return lasso_selection(candidates, LassoConfig(), generator)


def exact(candidates: Candidates, generator: torch.Generator) -> Tensor:
    """The best of all subsets. Every class must have N candidates and the same quota."""
    del generator
    n, quota = candidates.real.shape[1], int(candidates.quota[0])
    subsets = torch.tensor(list(itertools.combinations(range(n), quota)))
    keep = torch.zeros(len(subsets), n, dtype=candidates.z.dtype).scatter(1, subsets, 1.0)
    chosen = []
    for z, target in zip(candidates.z, candidates.target, strict=True):
        centred = z - target
        cost = ((keep @ (centred @ centred.T)) * keep).sum(dim=1)
        chosen.append(keep[cost.argmin()] > 0)
    return torch.stack(chosen)


SELECTORS: dict[str, Selector] = {
    "random": balanced_random,
    "lasso": lasso,
    "greedy": greedy_selection,
    "swap": swap_selection,
    "exact": exact,
}


def problem(classes: int, n: int, quota: int, target: str, seed: int) -> Candidates:
    """Candidates of ``classes`` classes: ``quota`` stored ones and ``n - quota`` new ones."""
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.arange(1, DIM + 1).rsqrt()
    z = torch.randn(classes, n, DIM, generator=generator) * spectrum
    stored = (torch.arange(n) < quota).expand(classes, n)
    weight = torch.ones(n)
    if target == "evidence":
        weight = torch.where(stored[0], SEEN / quota, 1.0)
    mean = torch.einsum("n,knd->kd", weight / weight.sum(), z)
    count = torch.full((classes,), quota)
    seen = torch.full((classes,), SEEN)
    return Candidates(z, torch.ones_like(stored), stored, mean, count, seen)


def quality(name: str, candidates: Candidates) -> float:
    """Mean squared distance to the target."""
    keep = SELECTORS[name](candidates, torch.Generator().manual_seed(0))
    weight = keep.to(candidates.z.dtype)
    return float(selection_objective(candidates.z, weight, candidates.target).mean())


def milliseconds(name: str, n: int, quota: int, repeats: int) -> float:
    """CPU time of one call on the classes of a step."""
    candidates = problem(STEP_CLASSES, n, quota, "evidence", 1)
    times = []
    for repeat in range(repeats + 1):
        generator = torch.Generator().manual_seed(repeat)
        begin = time.process_time()
        SELECTORS[name](candidates, generator)
        times.append(time.process_time() - begin)
    return 1e3 * statistics.median(times[1:])


def rows(classes: int, repeats: int) -> list[str]:
    """The table, in Markdown."""
    lines = [
        "| N candidates, m kept | target | " + " | ".join(SELECTORS) + " |",
        "|---|---|" + "---:|" * len(SELECTORS),
    ]
    for n, quota in SIZES:
        for target in ("printed", "evidence"):
            candidates = problem(classes, n, quota, target, 0)
            found = {name: quality(name, candidates) for name in SELECTORS}
            cells = [f"{value / found['exact']:.2f}" for value in found.values()]
            lines.append(f"| {n}, {quota} | {target} | " + " | ".join(cells) + " |")
        cells = [
            f"{milliseconds(name, n, quota, 3 if name == 'exact' else repeats):.2f} ms"
            for name in SELECTORS
        ]
        lines.append(f"| {n}, {quota} | time | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--classes", type=int, default=100, help="classes that are averaged over")
    parser.add_argument("--repeats", type=int, default=51, help="calls that are timed")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("\n".join(rows(arguments.classes, arguments.repeats)))


if __name__ == "__main__":
    main()
