"""What limits a class-conditional run: its memory's means, or its embedding.

For a finished DeepCCG run that was scored on held-out training images (``--validation``), these
images are classified task by task, and among all classes, by the nearest class mean of

- the stored examples, which is what the run itself predicts, and
- 100 training images of each class, many of which it has long forgotten;

and task by task by a logistic regression on the embeddings of the latter. The first row shows how
far the stored examples have been learned by heart. The test images are not read.

Usage: python benchmarks/probe.py RUN/seed-0 --data-dir DATA
"""

import argparse
from pathlib import Path

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from deepccg.experiment import load_run
from deepccg.gaussian import class_posterior, squared_distances
from deepccg.records import RunDirectory
from deepccg.streams import Split, cap_per_class, hold_out, load_dataset

PER_CLASS = 100

Sample = tuple[Tensor, Tensor]  # embeddings [N, D] and labels [N]
Tasks = list[tuple[int, ...]]


def nearest_mean(known: Sample, scored: Sample, tasks: Tasks) -> tuple[float, float]:
    """Accuracy task by task, averaged, and among all classes."""
    means = class_posterior(*known, int(known[1].max()) + 1).mean

    def accuracy(classes: tuple[int, ...]) -> float:
        z, y = _of_classes(scored, classes)
        nearest = squared_distances(z, means[list(classes)]).argmin(dim=1)
        return float((torch.tensor(classes)[nearest] == y).double().mean())

    every = tuple(label for classes in tasks for label in classes)
    return sum(map(accuracy, tasks)) / len(tasks), accuracy(every)


def linear_probe(known: Sample, scored: Sample, tasks: Tasks) -> float:
    """Accuracy of a logistic regression for each task, averaged."""
    rates = []
    for classes in tasks:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
        model.fit(*_of_classes(known, classes))
        rates.append(model.score(*_of_classes(scored, classes)))
    return sum(rates) / len(rates)


def _of_classes(sample: Sample, classes: tuple[int, ...]) -> Sample:
    z, y = sample
    own = torch.isin(y, torch.tensor(classes))
    return z[own], y[own]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a run directory with its checkpoint")
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    directory = RunDirectory(arguments.run)
    config, tasks = directory.config(), [t.classes for t in directory.evaluations()[-1].tasks]
    share = config["evaluation"].get("validation")
    if share is None:
        raise SystemExit("this run was scored on test images: give one made with --validation")
    learner = load_run(arguments.run).learner
    train = load_dataset(config["dataset"], data_dir=arguments.data_dir).train
    capped = cap_per_class(train, config["stream"]["examples_per_class"], config["seed"])
    stream, held_out = hold_out(capped, share, config["seed"])

    def embedded(split: Split) -> Sample:
        return learner.embed(torch.as_tensor(split.x)), torch.as_tensor(split.y)

    memory = learner.memory
    stored = learner.embed(memory.x), torch.tensor(learner.classes)[memory.y]
    many, scored = embedded(cap_per_class(stream, PER_CLASS, config["seed"])), embedded(held_out)
    rows = {
        "the stored examples themselves, by their own means": nearest_mean(stored, stored, tasks),
        "nearest mean of the stored": nearest_mean(stored, scored, tasks),
        f"nearest mean of {PER_CLASS} per class": nearest_mean(many, scored, tasks),
        f"logistic regression, {PER_CLASS} per class": (linear_probe(many, scored, tasks), None),
    }
    print("| classifier | task-incremental | class-incremental |\n|---|---:|---:|")
    for name, (by_task, overall) in rows.items():
        print(f"| {name} | {by_task:.1%} | {'-' if overall is None else f'{overall:.1%}'} |")


if __name__ == "__main__":
    main()
