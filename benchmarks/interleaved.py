"""Timing contestants in turn, and how near to the machine's arithmetic they come.

Everything is measured against something else in the same minute: a round runs a few steps of each
contestant, ratios are taken within a round, and the median over the rounds is reported with its
quartiles. CPU time is the process's own, so a busy machine spoils it less than wall time.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.utils.flop_counter import FlopCounterMode

from deepccg.networks import SlimResNet18

Step = Callable[[], object]
Times = dict[str, list[float]]

PEAK = "matrix product"  # the contestant that says what the machine can do
PEAK_SIDE = 1024


def alternate(competitors: Mapping[str, Step], rounds: int, steps: int) -> tuple[Times, Times]:
    """CPU and wall seconds per step of each contestant, one number per round."""
    for step in competitors.values():
        step()
    cpu: Times = {name: [] for name in competitors}
    wall: Times = {name: [] for name in competitors}
    for number in range(rounds):
        order = list(competitors)
        for name in order if number % 2 == 0 else reversed(order):
            wall_start, cpu_start = time.perf_counter(), time.process_time()
            for _ in range(steps):
                competitors[name]()
            cpu[name].append((time.process_time() - cpu_start) / steps)
            wall[name].append((time.perf_counter() - wall_start) / steps)
    return cpu, wall


def spread(values: Sequence[float]) -> list[float]:
    """Median and quartiles."""
    if len(values) < 2:
        return [values[0]] * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return [middle, low, high]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Median and quartiles of the ratio in each round."""
    return spread([a / b for a, b in zip(above, below, strict=True)])


def peak_step() -> Step:
    """A product of large matrices."""
    left, right = torch.ones(PEAK_SIDE, PEAK_SIDE), torch.ones(PEAK_SIDE, PEAK_SIDE)
    result = torch.empty(PEAK_SIDE, PEAK_SIDE)
    return lambda: torch.mm(left, right, out=result)


def share_of_peak(
    operations: float, times: Sequence[float], peak_times: Sequence[float]
) -> list[float]:
    """Operations per second of a step over those of ``peak_step``, round by round."""
    factor = operations / (2 * PEAK_SIDE**3)
    return ratios([factor * each for each in peak_times], times)


def operations_per_image(shape: Sequence[int]) -> tuple[int, int]:
    """Multiplications and additions of a slim ResNet's forward and backward pass."""
    network, image = SlimResNet18(shape[0]), torch.zeros(1, *shape)
    with FlopCounterMode(display=False) as forward:
        embedding = network(image)
    with FlopCounterMode(display=False) as backward:
        embedding.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()
