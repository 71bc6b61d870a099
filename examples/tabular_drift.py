"""Tables whose world changes: both classifiers beside River's own, each tested, then taught.

Run it: ``python examples/tabular_drift.py``, or with ``--rows 500`` for a first look, or with
``--streams Phishing Bananas`` for other data.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from river import (
    base,
    datasets,
    evaluate,
    forest,
    linear_model,
    metrics,
    naive_bayes,
    preprocessing,
    tree,
)
from river.datasets import synth

from deepccg.estimator.river import RiverClassifier
from deepccg.estimator.river_ccg import RiverCCGClassifier


def sea(rows: int) -> Any:
    """Three numbers, two of which decide; in the middle the rule changes."""
    return synth.ConceptDriftStream(
        synth.SEA(variant=0, seed=1), synth.SEA(variant=2, seed=1),
        position=rows // 2, width=rows // 20, seed=1,
    )  # fmt: skip


def reversed_sine(rows: int) -> Any:
    """Above or below a sine curve; in the middle the two classes change places."""
    return synth.ConceptDriftStream(
        synth.Sine(classification_function=0, seed=1),
        synth.Sine(classification_function=1, seed=1),
        position=rows // 2, width=rows // 20, seed=1,
    )  # fmt: skip


def moving_clouds(rows: int) -> Any:
    """Five classes, each made of a few clouds in ten dimensions; half of the clouds wander."""
    del rows
    return synth.RandomRBFDrift(
        seed_model=1, seed_sample=1, n_classes=5, n_features=10,
        n_centroids=20, n_drift_centroids=10, change_speed=0.05,
    )  # fmt: skip


STREAMS: dict[str, Callable[[int], Any]] = {
    "ImageSegments": lambda _: datasets.ImageSegments(),
    "SEA, one change": sea,
    "sine, reversed": reversed_sine,
    "moving clouds": moving_clouds,
    "Phishing": lambda _: datasets.Phishing(),
    "Bananas": lambda _: datasets.Bananas(),
}

CLASSIFIERS: dict[str, Callable[[], base.Classifier]] = {
    "CCG": lambda: RiverCCGClassifier(seed=0),
    "CCG, half-lives": lambda: RiverCCGClassifier(half_lives=(300, 50), seed=0),
    "DeepCCG": lambda: RiverClassifier(seed=0),
    "GaussianNB": naive_bayes.GaussianNB,
    "SoftmaxRegression": lambda: preprocessing.StandardScaler() | linear_model.SoftmaxRegression(),
    "HoeffdingAdaptiveTree": lambda: tree.HoeffdingAdaptiveTreeClassifier(seed=0),
    "ARFClassifier": lambda: forest.ARFClassifier(seed=0),
}


def progressive_accuracy(model: base.Classifier, stream: Any, rows: int) -> tuple[float, float]:
    """The share predicted before being told, and seconds of processor time per example."""
    examples = list(itertools.islice(stream, rows))
    began = time.process_time()
    accuracy = evaluate.progressive_val_score(examples, model, metrics.Accuracy())
    return accuracy.get(), (time.process_time() - began) / len(examples)


def main(rows: int = 2000, streams: Sequence[str] = tuple(STREAMS)[:4]) -> dict[str, list[float]]:
    """Print a table of progressive accuracies, and return them."""
    print(f"| {'':21} | {' | '.join(f'{name:>15}' for name in streams)} | {'ms/example':>10} |")
    print(f"|{'-' * 23}|{'----------------:|' * len(streams)}-----------:|")
    found: dict[str, list[float]] = {}
    for name, make in CLASSIFIERS.items():
        results = [progressive_accuracy(make(), STREAMS[stream](rows), rows) for stream in streams]
        found[name] = [accuracy for accuracy, _ in results]
        milliseconds = 1e3 * sum(seconds for _, seconds in results) / len(results)
        cells = " | ".join(f"{accuracy:15.1%}" for accuracy in found[name])
        print(f"| {name:21} | {cells} | {milliseconds:10.2f} |")
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is small: threads would only wait for each other
    parser = argparse.ArgumentParser(description="DeepCCG beside River's own classifiers")
    parser.add_argument("--rows", type=int, default=2000, help="of each stream, at most")
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS)[:4])
    arguments = parser.parse_args()
    main(arguments.rows, arguments.streams)
