"""How many examples a second: this package's classifiers beside scikit-learn, skorch and River.

64 features, 10 classes, 20 stored examples per class, one thread. Every classifier takes its turn
in every round, so that whatever else the machine does slows all alike; what is counted is the
process's own processor time, and what is reported the median of the rounds.

Run it: ``python benchmarks/estimators.py``
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from river import linear_model, multiclass, naive_bayes
from sklearn.neural_network import MLPClassifier
from skorch import NeuralNetClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from deepccg import MLP, DeepCCGClassifier
from deepccg.estimator.river import RiverClassifier

FEATURES, CLASSES, PER_CLASS, LAYERS = 64, 10, 20, (100, 80)
WARM_UP = 1000  # examples: the memory is full, every class known

Batch = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]
Learn = Callable[[Batch], Any]


class Network(nn.Module):
    """The embedding that DeepCCG trains, with a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = MLP(FEATURES, LAYERS)
        self.head = nn.Linear(LAYERS[-1], CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embedding(x))
        return logits


def batches(rows: int, seed: int) -> Iterator[Batch]:
    """Ten clouds that overlap a little, ``rows`` examples at a time, without end."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, FEATURES)) * 0.7
    random = np.random.default_rng(seed)
    while True:
        y = random.integers(0, CLASSES, rows)
        x = centres[y] + random.normal(size=(rows, FEATURES))
        yield x.astype(np.float32), y


def scikit_learn(rows: int) -> Learn:
    model = MLPClassifier(LAYERS, solver="sgd", batch_size=rows)
    return lambda batch: model.partial_fit(*batch, classes=np.arange(CLASSES))


def with_skorch(rows: int, **settings: Any) -> Learn:
    """One optimiser step per call: nothing held out, one pass, nothing printed."""
    model = NeuralNetClassifier(
        Network, criterion=nn.CrossEntropyLoss, lr=0.1, batch_size=rows, max_epochs=1,
        train_split=None, classes=np.arange(CLASSES), verbose=0, **settings,
    )  # fmt: skip
    return lambda batch: model.partial_fit(*batch)


ONE_STEP: dict[str, Any] = {  # the method's own fields, as in the older tables
    "replay": 10, "repeats": 1, "method_params": {"replay_sampling": "uniform"},
    "standardize": False,
}  # fmt: skip


def ours(**settings: Any) -> Learn:
    model = DeepCCGClassifier(
        memory=CLASSES * PER_CLASS, encoder_params={"layers": LAYERS}, random_state=0, **settings
    )
    return lambda batch: model.partial_fit(*batch)


def with_river(model: Any) -> Learn:
    """A River classifier, row by row; making the dictionaries is not counted against it."""

    def learn(batch: list[tuple[dict[int, float], int]]) -> None:
        for x, y in batch:
            model.learn_one(x, y)

    return learn


def our_river_face(**settings: Any) -> Any:
    return RiverClassifier(
        memory=CLASSES * PER_CLASS, encoder_params={"layers": LAYERS}, seed=0, **settings
    )


def as_dictionaries(batch: Batch) -> list[tuple[dict[int, float], int]]:
    x, y = batch
    return [
        (dict(enumerate(row)), label) for row, label in zip(x.tolist(), y.tolist(), strict=True)
    ]


def contenders(rows: int) -> dict[str, tuple[Learn, Callable[[Batch], Any]]]:
    """Who takes part, with what each is fed."""
    found: dict[str, tuple[Learn, Callable[[Batch], Any]]] = {
        "scikit-learn MLPClassifier.partial_fit": (scikit_learn(rows), tuple),
        "skorch NeuralNetClassifier.partial_fit": (with_skorch(rows), tuple),
        "the same without skorch's callbacks": (with_skorch(rows, callbacks="disable"), tuple),
        "DeepCCGClassifier, one plain step": (ours(batch_size=rows, **ONE_STEP), tuple),
        "the same, standardised": (
            ours(batch_size=rows, **(ONE_STEP | {"standardize": True})),
            tuple,
        ),
        "DeepCCGClassifier, one step": (ours(batch_size=rows), tuple),
        "DeepCCGClassifier": (ours(), tuple),
    }
    if rows == 1:
        found |= {
            "RiverClassifier, one plain step": (
                with_river(our_river_face(**ONE_STEP)), as_dictionaries,
            ),
            "RiverClassifier": (with_river(our_river_face()), as_dictionaries),
            "River GaussianNB.learn_one": (with_river(naive_bayes.GaussianNB()), as_dictionaries),
            "River SoftmaxRegression.learn_one": (
                with_river(linear_model.SoftmaxRegression()), as_dictionaries,
            ),
            "River LogisticRegression one-vs-rest": (
                with_river(multiclass.OneVsRestClassifier(linear_model.LogisticRegression())),
                as_dictionaries,
            ),
        }  # fmt: skip
    return found


def measure(rows: int, rounds: int, calls: int) -> dict[str, float]:
    """Median seconds of one call with ``rows`` examples, by contender."""
    taking_part = contenders(rows)
    for learn, form in taking_part.values():
        stream = batches(100, seed=1)
        for _ in range(WARM_UP // 100):
            learn(form(next(stream)))
    seconds: dict[str, list[float]] = {name: [] for name in taking_part}
    stream = batches(rows, seed=2)
    for _ in range(rounds):
        fresh = [next(stream) for _ in range(calls)]
        for name, (learn, form) in taking_part.items():
            fed = [form(batch) for batch in fresh]
            begin = time.process_time()
            for batch in fed:
                learn(batch)
            seconds[name].append((time.process_time() - begin) / calls)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=25, help="calls of each in a round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # NumPy's, whose idle threads would count as work of whoever is next
    warnings.simplefilter("ignore")  # MLPClassifier: its batch is larger than the data
    for rows in (1, 100):
        print(f"\n| {rows} at a time | ms per call | examples/s |\n|---|---:|---:|")
        for name, each in measure(rows, arguments.rounds, arguments.calls).items():
            print(f"| {name} | {each * 1e3:.2f} | {rows / each:,.0f} |")


if __name__ == "__main__":
    main()
