"""Learn your own images: a folder of class folders, whose classes arrive two at a time.

Run it: ``python examples/own_images.py FOLDER``
Without a folder it writes scikit-learn's digits as PNG files and learns those.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits

from deepccg import DeepCCGClassifier, load_dataset

STEP = 10  # images that arrive together


def main(folder: Path, cache: Path | None = None) -> float:
    """Learn the folder, print what is known after each pair of classes, return the accuracy."""
    data = load_dataset(f"folder:{folder}", cache_dir=cache)  # a fifth is held out, by file name
    names = np.array(data.class_names)
    x, y = data.train.x.transpose(0, 2, 3, 1), names[data.train.y]  # [N, H, W, C], bytes
    x_test, y_test = data.test.x.transpose(0, 2, 3, 1), names[data.test.y]
    print(f"{len(names)} classes, {len(y)} images to learn from, {len(y_test)} held out")

    model = DeepCCGClassifier(memory=10 * len(names), random_state=0)
    random = np.random.default_rng(0)
    for begin in range(0, len(names), 2):
        arriving = random.permutation(np.flatnonzero(np.isin(y, names[begin : begin + 2])))
        for rows in np.split(arriving, range(STEP, len(arriving), STEP)):
            model.partial_fit(x[rows], y[rows])
        known = np.isin(y_test, model.classes_)
        accuracy = model.score(x_test[known], y_test[known])
        print(f"{len(model.classes_)} classes: {accuracy:.1%} of the held-out images right")

    report_a_mistake(model, x_test, y_test)
    return float(accuracy)


def report_a_mistake(model: DeepCCGClassifier, x: np.ndarray, y: np.ndarray) -> None:
    """Say why the most confident mistake was made."""
    probability, predicted = model.predict_proba(x), model.predict(x)
    wrong = np.flatnonzero(predicted != y)
    if len(wrong) == 0:
        return
    worst = wrong[probability[wrong].max(axis=1).argmax()]
    near = model.explain(x[[worst]], neighbours=3)["neighbour_label"][0]
    print(
        f"surest mistake: {y[worst]} taken for {predicted[worst]} "
        f"with {probability[worst].max():.0%}; nearest stored images: {', '.join(near)}"
    )


def write_digits(folder: Path, per_class: int = 80, side: int = 16) -> None:
    """Some of scikit-learn's digits as ``folder/<digit>/<number>.png``."""
    images, labels = load_digits().images, load_digits().target
    for digit in range(10):
        (folder / f"digit {digit}").mkdir(parents=True)
        for number in np.flatnonzero(labels == digit)[:per_class]:
            small = Image.fromarray((images[number] * 15.9).astype(np.uint8))
            large = small.resize((side, side), Image.Resampling.BILINEAR)
            large.save(folder / f"digit {digit}" / f"{number}.png")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the same numbers on every machine, as far as that goes
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="FOLDER/<class>/<image>")
    given = parser.parse_args().folder
    if given is not None:
        main(given)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            write_digits(Path(scratch) / "digits")
            main(Path(scratch) / "digits", cache=Path(scratch) / "cache")
