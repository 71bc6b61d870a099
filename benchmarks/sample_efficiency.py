"""How much each classifier makes of one pass: shuffled and in class order, ten rows at a time.

A quarter is held out, three splits (River's trees: one, for time). CCGClassifier,
DeepCCGClassifier, GaussianNB and River's trees get raw features; SGD and the MLP get them
standardised by the whole training set, which a stream does not offer. Processor time is that of
learning and predicting, on one machine that was busy with other work.

Run it: ``python benchmarks/sample_efficiency.py --data-dir DATA``, with the archives that
``everyday_data.py`` names; what is recorded in benchmarks/sample_efficiency.jsonl is not run again.
Without ``--data-dir`` it prints the tables.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from everyday_data import Data, data_sets
from river import forest, tree
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from deepccg import CCGClassifier, DeepCCGClassifier

RECORDED = Path(__file__).with_suffix(".jsonl")
SPLITS = (10, 11, 12)  # not those on which features were chosen
SLOW = ("HoeffdingTree", "ARF")  # on the first split only
LEFT_OUT = (("200 classes", "ARF"),)  # minutes for a single stream
ORDERS = ("shuffled", "class order")
Rows = npt.NDArray[np.int64]


class OneByOne:
    """A classifier of River's with scikit-learn's names."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def partial_fit(self, x: Data, y: Any, classes: Any) -> None:
        del classes
        for row, label in zip(x, y, strict=True):
            self.model.learn_one(dict(enumerate(row)), label)

    def predict(self, x: Any) -> Any:
        return np.array([self.model.predict_one(dict(enumerate(row))) for row in x])


CLASSIFIERS: dict[str, tuple[Callable[[int], Any], bool]] = {  # and whether standardised
    "CCGClassifier": (lambda seed: CCGClassifier(random_state=seed), False),
    "DeepCCGClassifier": (lambda seed: DeepCCGClassifier(random_state=seed), False),
    "GaussianNB": (lambda _: GaussianNB(), False),
    "SGDClassifier": (lambda seed: SGDClassifier(random_state=seed), True),
    "MLPClassifier": (lambda seed: MLPClassifier(random_state=seed), True),
    "HoeffdingTree": (lambda _: OneByOne(tree.HoeffdingTreeClassifier()), False),
    "ARF": (lambda seed: OneByOne(forest.ARFClassifier(seed=seed)), False),
}


def split_rows(data: Data, split: int) -> tuple[Rows, Rows]:
    """Rows to learn and rows to test on."""
    learned, tested = train_test_split(
        np.arange(len(data[0])), test_size=0.25, random_state=split, stratify=data[1]
    )
    return learned, tested


def in_order(y: npt.NDArray[Any], order: str, seed: int) -> Rows:
    turn = np.random.default_rng(seed).permutation(len(y))
    return turn[np.argsort(y[turn], kind="stable")] if order == "class order" else turn


def balanced_accuracy(found: npt.NDArray[Any], y: npt.NDArray[Any]) -> float:
    """Mean share of each class that is right: of 97:3, guessing the larger has 50."""
    return float(np.mean([(found[y == label] == label).mean() for label in np.unique(y)]))


def score(name: str, data: Data, order: str, split: int) -> tuple[float, float, float]:
    """Accuracy and balanced accuracy on the held-out quarter, in percent, and seconds."""
    maker, standardised = CLASSIFIERS[name]
    # SGD learns each class against the others: ten at a time, 200 classes would take hours.
    size = 100 if name == "SGDClassifier" and len(np.unique(data[1])) > 100 else 10
    learned, tested = split_rows(data, split)
    x, x_test, y, y_test = data[0][learned], data[0][tested], data[1][learned], data[1][tested]
    if standardised:
        scaler = StandardScaler().fit(x)
        x, x_test = scaler.transform(x), scaler.transform(x_test)
    turn, model, begin = in_order(y, order, split), maker(split), time.process_time()
    for first in range(0, len(x), size):
        part = turn[first : first + size]
        model.partial_fit(x[part], y[part], classes=np.unique(y))
    found = model.predict(x_test)
    seconds = time.process_time() - begin
    return 100 * float((found == y_test).mean()), 100 * balanced_accuracy(found, y_test), seconds


def record(data_name: str, data: Data, name: str, order: str) -> dict[str, Any]:
    """What is kept of a classifier on a data set."""
    splits = SPLITS[:1] if name in SLOW else SPLITS
    results = [score(name, data, order, split) for split in splits]
    return {
        "data": data_name, "rows": len(data[0]), "features": data[0].shape[1],
        "classes": len(np.unique(data[1])), "classifier": name, "order": order,
        "accuracy": [round(each[0], 2) for each in results],
        "balanced": [round(each[1], 2) for each in results],
        "seconds": [round(each[2], 3) for each in results],
    }  # fmt: skip


def measure(data_dir: Path) -> None:
    done = {(each["data"], each["classifier"], each["order"]) for each in recorded()}
    for data_name, data in data_sets(data_dir):
        for name in CLASSIFIERS:
            for order in ORDERS:
                if (data_name, name, order) not in done and (data_name, name) not in LEFT_OUT:
                    line = json.dumps(record(data_name, data, name, order))
                    with RECORDED.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")


def recorded() -> list[dict[str, Any]]:
    lines = RECORDED.read_text(encoding="utf-8").splitlines() if RECORDED.exists() else []
    return [json.loads(line) for line in lines]


def table(records: list[dict[str, Any]], figure: str, digits: int = 1) -> str:
    """Markdown: mean over the splits, shuffled / in class order; bold: best of three splits."""
    names = list(CLASSIFIERS)
    best_of = min if figure == "seconds" else max
    lines = [f"| {figure} | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for data_name in dict.fromkeys(each["data"] for each in records):
        mean = {
            (each["classifier"], each["order"]): statistics.mean(each[figure])
            for each in records
            if each["data"] == data_name
        }
        shown = {key: f"{value:.{digits}f}" for key, value in mean.items()}
        best = {}
        for order in ORDERS:
            compared = (mean[key] for key in mean if key[1] == order and key[0] not in SLOW)
            best[order] = f"{best_of(compared):.{digits}f}"
        cells = [
            " / ".join(
                f"**{shown[name, o]}**"
                if shown[name, o] == best[o] and name not in SLOW
                else shown[name, o]
                for o in ORDERS
            )
            if (data_name, name) not in LEFT_OUT
            else ""
            for name in names
        ]
        lines.append(f"| {data_name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="measure what is not recorded yet")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # MLPClassifier: its batch is larger than the data
    if arguments.data_dir:
        measure(arguments.data_dir)
    records = recorded()
    print(table(records, "accuracy"))
    print(table([each for each in records if each["data"] == "97:3"], "balanced"))
    print(table(records, "seconds", 2))


if __name__ == "__main__":
    main()
