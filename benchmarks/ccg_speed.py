"""What a step of the closed form costs, the prediction after it included, beside naive Bayes.

64 features, 10 classes, one thread. Every classifier takes its turn in every round, so that
whatever else the machine does slows all alike; what is counted is the process's own processor
time, and what is reported the median of the rounds, and its ratio to naive Bayes.

Run it: ``python benchmarks/ccg_speed.py``
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from estimators import CLASSES, as_dictionaries, batches
from river import naive_bayes
from sklearn.naive_bayes import GaussianNB
from threadpoolctl import threadpool_limits

from deepccg import CCGClassifier, DeepCCGClassifier
from deepccg.estimator.river import RiverClassifier
from deepccg.estimator.river_ccg import RiverCCGClassifier

WARM_UP = 1000  # examples: every class is known, the memory is full

Step = Callable[[Any], Any]


def with_scikit_learn(model: Any) -> Step:
    def step(batch: Any) -> None:
        model.partial_fit(*batch, classes=np.arange(CLASSES))
        model.predict(batch[0])

    return step


def with_river(model: Any) -> Step:
    def step(batch: Any) -> None:
        for x, y in batch:
            model.learn_one(x, y)
            model.predict_one(x)

    return step


def contenders(rows: int) -> tuple[dict[str, Step], Callable[[Any], Any]]:
    """Who takes part, naive Bayes first, and what they are fed."""
    if rows == 1:
        river = {
            "River GaussianNB": naive_bayes.GaussianNB(),
            "RiverCCGClassifier": RiverCCGClassifier(seed=0),
            "RiverCCGClassifier, two half-lives": RiverCCGClassifier(half_lives=(300, 50), seed=0),
            "RiverClassifier (DeepCCG)": RiverClassifier(seed=0),
        }
        return {name: with_river(model) for name, model in river.items()}, as_dictionaries
    ours = {
        "scikit-learn GaussianNB": GaussianNB(),
        "CCGClassifier": CCGClassifier(random_state=0),
        "CCGClassifier, two half-lives": CCGClassifier(half_lives=(300, 50), random_state=0),
        "DeepCCGClassifier": DeepCCGClassifier(random_state=0),
    }
    return {name: with_scikit_learn(model) for name, model in ours.items()}, tuple


def measure(rows: int, rounds: int, calls: int) -> dict[str, float]:
    """Median seconds of one step with ``rows`` examples and of predicting these."""
    steps, form = contenders(rows)
    stream = batches(100, seed=1)
    for _ in range(WARM_UP // 100):
        batch = form(next(stream))
        for step in steps.values():
            step(batch)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    stream = batches(rows, seed=2)
    for _ in range(rounds):
        fed = [form(next(stream)) for _ in range(calls)]
        for name, step in steps.items():
            begin = time.process_time()
            for batch in fed:
                step(batch)
            seconds[name].append((time.process_time() - begin) / calls)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=20, help="steps of each in a round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # NumPy's, whose idle threads would count as work of whoever is next
    for rows in (1, 100):
        found = measure(rows, arguments.rounds, arguments.calls)
        least = next(iter(found.values()))
        print(f"\n| learn {rows}, predict {rows} | ms | over naive Bayes |\n|---|---:|---:|")
        for name, each in found.items():
            print(f"| {name} | {each * 1e3:.2f} | {each / least:.1f} |")


if __name__ == "__main__":
    main()
