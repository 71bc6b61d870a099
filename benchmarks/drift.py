"""How stored embeddings drift while DeepCCG learns CIFAR-100, and how well estimates follow.

    python benchmarks/drift.py --data-dir DATA

The exact learner runs to the second task. Then the stored examples of the first one are embedded
after every step. First table: what happens to them in a number of steps, in units of the
within-class variance (sum over dimensions) - the part of the drift that is not shared by the class
(nu), what is left of it under the best common slope, and which share of it under the best of four
ridge-regularised linear maps (fitted to three tenths of the examples, judged on the rest). Second
table: the squared error of class means, in the same units, if each class is used with some
probability per step and s random examples are embedded at each use: by these s alone, by moving the
caches, and as ``posterior=sampled`` does it, with the slope of the other classes.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from deepccg import DeepCCG, disjoint, load_dataset
from deepccg.gaussian import class_posterior, estimate_embeddings
from deepccg.memory import rank_within
from deepccg.networks import NetworkConfig, build_network

Follow = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

PER_CLASS, CLASSES_PER_TASK, REPEATS = 10, 5, 4
ALIGNED = "|" + "---:|" * 5


def recorded(data_dir: str, start: int, steps: int) -> tuple[Tensor, Tensor]:
    """Embeddings ``[T, M, D]`` of the first task's stored examples, and their classes ``[M]``."""
    stream = disjoint(load_dataset("cifar100", data_dir).train, classes_per_task=CLASSES_PER_TASK)
    network = build_network(NetworkConfig(), (3, 32, 32), 0)
    config = DeepCCG.Config(embedding_scale=2.0, replay_mask="task")
    classes = [label for task in stream.tasks for label in task.classes]
    learner = DeepCCG(network, config, memory=PER_CLASS * len(classes), classes=classes)
    frames = []
    for number, batch in enumerate(stream):
        if number == start + steps:
            break
        if number >= start:
            if batch.task == stream.tasks[0]:  # its stored examples would still be exchanged
                raise SystemExit(f"step {number} is one of the first task: give a later --start")
            first = learner.memory.y < CLASSES_PER_TASK
            frames.append(learner.embed(learner.memory.x[first]))
        learner.learn(batch)
    return torch.stack(frames), learner.memory.y[first]


def within(z: Tensor, y: Tensor) -> Tensor:
    """Deviations from class means."""
    return z - class_posterior(z, y, CLASSES_PER_TASK).mean[y]


def left_by_a_map(old: Tensor, new: Tensor) -> float:
    """Which share of the unshared drift the best ridge map leaves, where it was not fitted."""
    order = torch.randperm(len(old), generator=torch.Generator().manual_seed(0))
    fit, judge = order[: 3 * len(old) // 10], order[3 * len(old) // 10 :]
    gram, drift = old[fit].T @ old[fit], new - old
    left = []
    for strength in (0.01, 0.1, 1.0, 10.0):
        ridge = gram + strength * gram.diagonal().mean() * torch.eye(len(gram))
        linear = torch.linalg.solve(ridge, old[fit].T @ drift[fit])
        residual = drift[judge] - old[judge] @ linear
        left.append(float(residual.square().sum() / drift[judge].square().sum()))
    return min(left)


def drift_table(z: Tensor, y: Tensor) -> list[str]:
    """The first table."""
    lines = [
        "| steps | nu | shrunk | left by a linear map | shift of the mean |",
        "|" + "---:|" * 5,
    ]
    for gap in (1, 2, 5, 10, 20, 40):
        rows = []
        for t in range(0, len(z) - gap, 5):
            old, new = within(z[t], y), within(z[t + gap], y)
            total = new.square().sum()
            factor = (old * new).sum() / old.square().sum()
            means = [class_posterior(z[s], y, CLASSES_PER_TASK).mean for s in (t, t + gap)]
            shift = (means[1] - means[0]).square().sum() * PER_CLASS
            nu, shrunk = (new - old).square().sum(), (new - factor * old).square().sum()
            rows.append([float(v / total) for v in (nu, shrunk)] + [left_by_a_map(old, new)])
            rows[-1].append(float(shift / total))
        mean = torch.tensor(rows).mean(dim=0).tolist()
        cells = [f"{mean[0]:.2f}", f"{mean[1]:.2f}", f"{100 * mean[2]:.0f} %", f"{mean[3]:.2f}"]
        lines.append(f"| {gap} | " + " | ".join(cells) + " |")
    return lines


def sampled_alone(cached: Tensor, now: Tensor, y: Tensor, sampled: Tensor) -> Tensor:
    """No cache: everything else is taken to be where the sample is."""
    return torch.where(sampled[:, None], now, _mean_of(now, y, sampled)[y]) + 0 * cached


def moved(cached: Tensor, now: Tensor, y: Tensor, sampled: Tensor) -> Tensor:
    """Caches moved by the mean difference of the sample."""
    shift = _mean_of(now, y, sampled) - _mean_of(cached, y, sampled)
    return torch.where(sampled[:, None], now, cached + shift[y])


def sloped(cached: Tensor, now: Tensor, y: Tensor, sampled: Tensor) -> Tensor:
    """The library's estimate."""
    return estimate_embeddings(cached, y, now[sampled], sampled, CLASSES_PER_TASK).z


def _mean_of(z: Tensor, y: Tensor, sampled: Tensor) -> Tensor:
    return class_posterior(z[sampled], y[sampled], CLASSES_PER_TASK).mean


def error(z: Tensor, y: Tensor, follow: Follow, s: int, use: float, seed: int) -> float:
    """Mean squared error of class means, in units of the within-class variance."""
    generator = torch.Generator().manual_seed(seed)
    cached, errors = z[0], []
    for t in range(1, len(z)):
        if float(torch.rand(1, generator=generator)) > use:
            continue
        sampled = rank_within(y, torch.rand(len(y), generator=generator)) < s
        cached = follow(cached, z[t], y, sampled)
        if t > len(z) // 4:  # caches have aged
            miss = class_posterior(cached - z[t], y, CLASSES_PER_TASK).mean.square().sum(dim=1)
            spread = within(z[t], y).square().sum() / (len(y) - CLASSES_PER_TASK)
            errors.append(float(miss.mean() / spread))
    return sum(errors) / len(errors)


def error_table(z: Tensor, y: Tensor) -> list[str]:
    """The second table."""
    lines = ["| uses per step | s | sample alone | moved | with a slope |", ALIGNED]
    for use in (1.0, 0.43, 0.1):
        for s in (2, 3, 4, 5):
            cells = [
                f"{sum(error(z, y, follow, s, use, seed) for seed in range(REPEATS)) / REPEATS:.3f}"
                for follow in (sampled_alone, moved, sloped)
            ]
            lines.append(f"| {use:g} | {s} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", required=True, help="where CIFAR-100's parquet files are")
    parser.add_argument("--start", type=int, default=300, help="first step that is looked at")
    parser.add_argument("--steps", type=int, default=90, help="how many are")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    z, y = recorded(arguments.data_dir, arguments.start, arguments.steps)
    print("\n".join([*drift_table(z, y), "", *error_table(z, y)]))


if __name__ == "__main__":
    main()
