"""The embedded data set: scikit-learn's handwritten digits, real images without a download."""

from functools import cache

import numpy as np

from deepccg.core import derive_seed
from deepccg.streams.data import Dataset, Split, rows_by_class

TRAIN_PER_CLASS = 140  # of at least 174; the others are the test part
N_TRAIN, N_TEST = 1400, 397


def digits() -> Dataset:
    """8 x 8 grey images of the ten digits: 1,400 to train on, 397 to test on."""
    names = tuple(str(digit) for digit in range(10))
    return Dataset("digits", names, lambda: _parts()[0], lambda: _parts()[1])


@cache
def _parts() -> tuple[Split, Split]:
    from sklearn.datasets import load_digits

    values, targets = load_digits(return_X_y=True)  # 0..16, float64 [N, 64]
    x = np.rint(values * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    y = targets.astype(np.int64)
    train, test = [], []
    for c, rows in enumerate(rows_by_class(y)):
        # A fixed seed: the split is part of the data set, not of a run.
        order = np.random.default_rng(derive_seed(0, "digits-split", str(c))).permutation(rows)
        train.append(order[:TRAIN_PER_CLASS])
        test.append(order[TRAIN_PER_CLASS:])
    everything = Split(x, y)
    parts = [everything.take(np.sort(np.concatenate(rows))) for rows in (train, test)]
    return parts[0], parts[1]
