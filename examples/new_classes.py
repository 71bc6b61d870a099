"""A classifier that keeps learning: the digits arrive two at a time, and old ones never return.

Run it: ``python examples/new_classes.py``
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from deepccg import DeepCCGClassifier


def main() -> float:
    """Learn the stream, print what is known after each pair of digits, return the last accuracy."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, stratify=y, random_state=0)
    model = DeepCCGClassifier(memory=100, random_state=0)

    for pair in ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9)):
        arriving = [row for row in range(len(y)) if y[row] in pair]
        for begin in range(0, len(arriving), 10):  # one pass, ten examples a step
            rows = arriving[begin : begin + 10]
            model.partial_fit(x[rows], y[rows])
        known = y_test <= pair[1]
        accuracy = model.score(x_test[known], y_test[known])
        print(f"digits 0 to {pair[1]}: {accuracy:.1%} of the held-out ones right")

    counts = model.class_counts_
    stored = counts["stored"].tolist()
    print(f"seen: {counts['seen'].sum()} examples, stored: {sum(stored)} ({stored})")
    return float(accuracy)


if __name__ == "__main__":
    torch.set_num_threads(1)  # the same numbers on every machine, as far as that goes
    main()
