"""How much each classifier makes of one pass: shuffled and in class order, ten rows at a time.

A quarter is held out, three splits. CCGClassifier also learns one row at a time, with the same
result. It and GaussianNB get raw features; SGD, the MLP and DeepCCG get them standardised by the
whole training set, which a stream does not offer.

Run it: ``python benchmarks/sample_efficiency.py --write``, for benchmarks/sample_efficiency.json
and the table on standard output; without ``--write`` the table of the recorded results.
"""

import argparse
import json
import statistics
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from river import datasets as river_datasets
from sklearn import datasets
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from deepccg import CCGClassifier, DeepCCGClassifier

RECORDED = Path(__file__).with_suffix(".json")
SPLITS = (10, 11, 12)  # not those on which features were chosen
ORDERS = ("shuffled", "class order")
Data = tuple[npt.NDArray[np.float64], npt.NDArray[Any]]

CLASSIFIERS: dict[str, tuple[Callable[[int], Any], int, bool]] = {  # maker, rows, standardised
    "CCGClassifier": (lambda seed: CCGClassifier(random_state=seed), 10, False),
    "CCGClassifier, one at a time": (lambda seed: CCGClassifier(random_state=seed), 1, False),
    "DeepCCGClassifier": (lambda seed: DeepCCGClassifier(random_state=seed), 10, True),
    "GaussianNB": (lambda _: GaussianNB(), 10, False),
    "SGDClassifier": (lambda seed: SGDClassifier(random_state=seed), 10, True),
    "MLPClassifier": (lambda seed: MLPClassifier(random_state=seed), 10, True),
}


def from_river(stream: Any, rows: int) -> Data:
    examples = list(stream.take(rows))
    names = sorted(examples[0][0])
    x = np.array([[float(each[name]) for name in names] for each, _ in examples])
    return x, np.array([str(label) for _, label in examples])


def data_sets() -> Iterator[tuple[str, Data]]:
    for name in ("iris", "wine", "breast_cancer", "digits"):
        yield name.replace("_", " "), getattr(datasets, f"load_{name}")(return_X_y=True)
    yield "two moons", datasets.make_moons(1000, noise=0.2, random_state=0)
    yield (
        "300 features, 20 of use",
        datasets.make_classification(
            2000, 300, n_informative=20, n_redundant=0, n_classes=4, random_state=0
        ),
    )
    yield (
        "97:3",
        datasets.make_classification(
            3000, 20, n_informative=8, weights=[0.97], class_sep=1.0, random_state=0
        ),
    )
    yield "200 classes", datasets.make_blobs(4000, 10, centers=200, cluster_std=2.0, random_state=0)
    yield "image segments", from_river(river_datasets.ImageSegments(), 2310)
    yield "phishing", from_river(river_datasets.Phishing(), 1250)
    yield "bananas", from_river(river_datasets.Bananas(), 2000)


def balanced_accuracy(found: npt.NDArray[Any], y: npt.NDArray[Any]) -> float:
    """Mean share of each class that is right: of 97:3, guessing the larger has 50."""
    return float(np.mean([(found[y == label] == label).mean() for label in np.unique(y)]))


def score(name: str, data: Data, order: str, split: int) -> tuple[float, float]:
    """Accuracy and balanced accuracy on the held-out quarter, in percent."""
    maker, rows, standardised = CLASSIFIERS[name]
    if name == "SGDClassifier" and len(np.unique(data[1])) > 100:
        rows = 100  # it learns each class against the others: ten at a time would take hours
    x, x_test, y, y_test = train_test_split(
        *data, test_size=0.25, random_state=split, stratify=data[1]
    )
    if standardised:
        scaler = StandardScaler().fit(x)
        x, x_test = scaler.transform(x), scaler.transform(x_test)
    turn = np.random.default_rng(split).permutation(len(x))
    if order == "class order":
        turn = turn[np.argsort(y[turn], kind="stable")]
    model = maker(split)
    for begin in range(0, len(x), rows):
        part = turn[begin : begin + rows]
        model.partial_fit(x[part], y[part], classes=np.unique(y))
    found = model.predict(x_test)
    return 100 * float((found == y_test).mean()), 100 * balanced_accuracy(found, y_test)


def record(data_name: str, data: Data, name: str, order: str) -> dict[str, Any]:
    """What is kept of a classifier on a data set."""
    pairs = [score(name, data, order, split) for split in SPLITS]
    return {
        "data": data_name, "rows": len(data[0]), "features": data[0].shape[1],
        "classes": len(np.unique(data[1])), "classifier": name, "order": order,
        "accuracy": [round(pair[0], 2) for pair in pairs],
        "balanced": [round(pair[1], 2) for pair in pairs],
    }  # fmt: skip


def measure() -> list[dict[str, Any]]:
    records = []
    for data_name, data in data_sets():
        for name in CLASSIFIERS:
            for order in ORDERS:
                records.append(record(data_name, data, name, order))
                print(json.dumps(records[-1]), flush=True)
    return records


def table(records: list[dict[str, Any]], figure: str = "accuracy") -> str:
    """Markdown: mean over the splits, shuffled / in class order; the best of a row in bold."""
    names = [name for name, (_, rows, _) in CLASSIFIERS.items() if rows > 1]
    lines = [f"| {figure}, % | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for data_name in dict.fromkeys(record["data"] for record in records):
        mean = {
            (record["classifier"], record["order"]): round(statistics.mean(record[figure]), 1)
            for record in records
            if record["data"] == data_name
        }
        best = {order: max(mean[name, order] for name in names) for order in ORDERS}
        cells = []
        for name in names:
            each = [
                f"**{mean[name, o]}**" if mean[name, o] == best[o] else f"{mean[name, o]}"
                for o in ORDERS
            ]
            cells.append(" / ".join(each))
        lines.append(f"| {data_name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="measure again and record it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # MLPClassifier: its batch is larger than the data
    if arguments.write:
        RECORDED.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    records = json.loads(RECORDED.read_text(encoding="utf-8"))
    print(table(records))
    print(table([record for record in records if record["data"] == "97:3"], "balanced"))


if __name__ == "__main__":
    main()
