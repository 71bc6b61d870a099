"""What the classifiers' ``renewal`` brings where classes change, and costs where they do not.

Changing: 3,000 examples one by one, each predicted, then learned, 100 stored; the share that is
right of the last quarter. In the middle four clouds move on to the next corner of a square, and the
two sides of a sine curve change their labels. Not changing: digits two classes after two, ten
examples a step; the share that is right of held-out training examples at the end. River's image
segments stand for a stream that is not ours; their examples come shuffled.

Run it: ``python benchmarks/renewal.py``; docs/estimator.md has the table.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from river import preprocessing
from river.datasets import ImageSegments, synth
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from deepccg import DeepCCGClassifier
from deepccg.estimator.river import RiverClassifier
from deepccg.records import estimate
from deepccg.report import percent

ROWS, MEMORY, SEEDS = 3000, 100, range(3)
DIGIT_SEEDS, DIGIT_MEMORIES = range(8), (50, 100, 500)
CORNERS = np.array([[0, 0], [0, 4], [4, 0], [4, 4]])
RENEWALS = (0, 0.5, "errors")

Stream = Iterator[tuple[dict[Any, float], Any]]


def moving_corners(seed: int) -> Stream:
    random = np.random.default_rng(seed)
    for number in range(ROWS):
        label = int(random.integers(4))
        corner = CORNERS[(label + (number >= ROWS // 2)) % 4]
        yield dict(enumerate((corner + random.normal(size=2)).tolist())), label


def reversed_sine(seed: int) -> Stream:
    concepts = (synth.Sine(classification_function=k, seed=seed) for k in (0, 1))
    for concept in concepts:
        yield from islice(concept, ROWS // 2)


def segments(seed: int) -> Stream:
    rows = list(ImageSegments())
    np.random.default_rng(seed).shuffle(rows)
    yield from rows


def last_quarter(stream: Stream, renewal: Any, seed: int) -> float:
    model = preprocessing.StandardScaler() | RiverClassifier(
        memory=MEMORY, seed=seed, method_params={"renewal": renewal}
    )
    right = []
    for x, y in stream:
        right.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    return float(np.mean(right[-len(right) // 4 :]))


def digits_in_pairs(memory: int, renewal: Any, seed: int) -> float:
    x, y = load_digits(return_X_y=True)
    x, _, y, _ = train_test_split(x / 16, y, test_size=0.2, random_state=0, stratify=y)
    x, x_held, y, y_held = train_test_split(x, y, test_size=0.2, random_state=seed, stratify=y)
    random = np.random.default_rng(seed)
    model = DeepCCGClassifier(memory=memory, random_state=seed, method_params={"renewal": renewal})
    for pair in random.permutation(10).reshape(5, 2):
        own = random.permutation(np.flatnonzero(np.isin(y, pair)))
        for rows in np.split(own, range(10, len(own), 10)):
            model.partial_fit(x[rows], y[rows])
    return float(model.score(x_held, y_held))


def row(name: str, values: Sequence[Sequence[float]]) -> None:
    cells = (percent(estimate(list(each))) for each in values)
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    names = " | ".join(f"`renewal={value}`" for value in RENEWALS)
    print(f"| right, % | {names} |\n|---|{'---:|' * len(RENEWALS)}")
    for make, name in (
        (moving_corners, "four clouds that move on"),
        (reversed_sine, "a sine curve whose sides change places"),
        (segments, "image segments, shuffled"),
    ):
        row(name, [[last_quarter(make(s), value, s) for s in SEEDS] for value in RENEWALS])
    for memory in DIGIT_MEMORIES:
        found = [[digits_in_pairs(memory, value, s) for s in DIGIT_SEEDS] for value in RENEWALS]
        row(f"digits, two classes after two, {memory} stored", found)


if __name__ == "__main__":
    main()
