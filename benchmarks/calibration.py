"""Calibration and out-of-distribution scores of DeepCCG beside ER on CIFAR-10.

    python benchmarks/calibration.py --data-dir DATA --out benchmarks/calibration.json

Trains both methods, class-incrementally on the disjoint stream with 30 stored images per class:
once on all ten classes, and once on eight, the two others held out as out-of-distribution. Settings
are the library's presets and nothing is chosen on test images. Finished runs in ``--runs`` are
read back, and so are their outputs, so scoring again neither trains nor embeds.
``benchmarks/calibration_page.py`` writes docs/uncertainty.md from the figures.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from deepccg import Dataset, load_dataset, run
from deepccg.core import derive_seed
from deepccg.estimator.ood import strangeness
from deepccg.evaluation import brier_score, expected_calibration_error, reliability
from deepccg.methods.deepccg import DeepCCG
from deepccg.records import write_atomically
from deepccg.streams import Split

METHODS = ("deepccg", "er")
SIDE, NOISE_IMAGES = 32, 2000
TEMPERATURE_IMAGES = 500
DISTANCE_IMAGES = 1500


def held_out_pair(seed: int) -> tuple[int, int]:
    """The held-out classes: the data set's first pair, second pair, and so on."""
    return 2 * (seed % 5), 2 * (seed % 5) + 1


def eight_classes(data: Dataset, seed: int) -> Dataset:
    """The data set without the held-out pair; under its own name, so that its presets apply."""
    kept = np.setdiff1d(np.arange(data.n_classes), held_out_pair(seed))

    def part(split: Split) -> Split:
        rows = np.flatnonzero(np.isin(split.y, kept))
        return Split(split.x[rows], np.searchsorted(kept, split.y[rows]))

    names = tuple(data.class_names[c] for c in kept)
    return Dataset(data.name, names, lambda: part(data.train), lambda: part(data.test))


def digit_images() -> np.ndarray:
    """scikit-learn's digits as images of CIFAR's form, ``[1797, 3, 32, 32]`` bytes."""
    images = np.rint(load_digits().images * (255 / 16)).astype(np.uint8)
    large = [np.asarray(Image.fromarray(i).resize((SIDE, SIDE), Image.BILINEAR)) for i in images]
    return np.stack(large)[:, None].repeat(3, axis=1)


def noise_images(seed: int) -> np.ndarray:
    """Every byte equally likely."""
    random = np.random.default_rng(derive_seed(seed, "noise"))
    shape = (NOISE_IMAGES, 3, SIDE, SIDE)
    return random.integers(0, 256, size=shape, dtype=np.uint8)


class Outputs(NamedTuple):
    """What a learner says of images: logits ``[N, K]`` by label, and how strange, ``[N]``."""

    logits: torch.Tensor
    strange: np.ndarray


def outputs_of(learner, inputs: dict[str, np.ndarray], file: Path) -> dict[str, Outputs]:
    """Of several sets of images; kept in ``file``.

    How strange: DeepCCG's ``ood_score``, ER's energy, which is minus the log of the summed
    exponentials of the logits.
    """
    if not file.exists():
        order, found = np.argsort(learner.columns(None)), {}
        for name, images in inputs.items():
            x = torch.from_numpy(np.array(images))
            logits = learner.predict_logits(x)[:, order]
            generative = isinstance(learner, DeepCCG)
            strange = strangeness(learner, x) if generative else -logits.logsumexp(dim=1)
            found |= {name: logits.numpy(), f"{name}, how strange": strange.numpy()}
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, **found)
    with np.load(file) as kept:
        return {
            name: Outputs(
                torch.from_numpy(kept[name]).double(), kept[f"{name}, how strange"].astype(float)
            )
            for name in inputs
        }


def scores_of(outputs: Outputs) -> dict[str, np.ndarray]:
    """Out-of-distribution scores, ``[N]`` each; larger is less like the learned."""
    return {
        "confidence": -outputs.logits.softmax(dim=1).amax(dim=1).numpy(),
        "density": outputs.strange,
    }


def auroc(inside: dict[str, np.ndarray], outside: dict[str, np.ndarray]) -> dict[str, float]:
    """How often an unknown image scores above one of a learned class, by score."""
    found = {}
    for name, known in inside.items():
        truth = np.repeat([0, 1], [len(known), len(outside[name])])
        found[name] = float(roc_auc_score(truth, np.concatenate([known, outside[name]])))
    return found


def calibration(logits: torch.Tensor, y: np.ndarray) -> dict:
    """Accuracy, calibration and proper scores on the test images."""
    log_p = logits.log_softmax(dim=1)
    p = log_p.exp().numpy()
    groups = reliability(y, p)
    right = p.argmax(axis=1) == y
    return {
        "accuracy": float(right.mean()),
        "ranking": float(roc_auc_score(right, p.max(axis=1))),
        "confidence": float(p.max(axis=1).mean()),
        "ece": groups.error,
        "ece_mass": expected_calibration_error(y, p, equal="mass"),
        "brier": brier_score(y, p),
        "nll": float(-log_p[torch.arange(len(y)), torch.tensor(y)].mean()),
        "reliability": [
            [None if np.isnan(value) else round(float(value), 6) for value in row]
            for row in (groups.confidence, groups.accuracy, groups.count)
        ],
    }


def tempered(logits: torch.Tensor, y: np.ndarray, seed: int) -> dict:
    """The same with one number, the temperature, fitted to a few images; scored on the rest."""
    order = np.random.default_rng(derive_seed(seed, "temperature")).permutation(len(y))
    few, rest = order[:TEMPERATURE_IMAGES], order[TEMPERATURE_IMAGES:]

    def loss(log_temperature: float) -> float:
        scaled = logits[few] / np.exp(log_temperature)
        return float(torch.nn.functional.cross_entropy(scaled, torch.tensor(y[few])))

    temperature = float(np.exp(minimize_scalar(loss, bounds=(-3, 5), method="bounded").x))
    return {"temperature": temperature, **calibration(logits[rest] / temperature, y[rest])}


def distances(learner: DeepCCG, data: Dataset, seed: int) -> dict[str, float]:
    """Mean squared distances in the model's units, where a class's variance is one.

    To the image's own class mean for ``own ...``, to the nearest one for ``nearest ...``.
    """
    classifier = learner.current_classifier()
    columns = {label: c for c, label in enumerate(learner.classes)}

    def to_means(x: torch.Tensor) -> torch.Tensor:
        return classifier.class_scores(learner.embed_shaped(x))

    found = {}
    for name, split in (("own stream", data.train), ("own test", data.test)):
        y = torch.tensor([columns[label] for label in split.y[:DISTANCE_IMAGES].tolist()])
        apart = to_means(torch.tensor(split.x[:DISTANCE_IMAGES]))
        found[name] = float(apart.gather(1, y[:, None]).mean())
    found["nearest test"] = float(apart.amin(dim=1).mean())
    stored = to_means(learner.memory.x).gather(1, learner.memory.y[:, None])
    found["own stored"] = float(stored.mean())
    for name, images in (("digits", digit_images()), ("noise", noise_images(seed))):
        near = to_means(torch.from_numpy(images[:DISTANCE_IMAGES])).amin(dim=1)
        found[f"nearest {name}"] = float(near.mean())
    return found


def trained(data: Dataset, method: str, seed: int, every: str, directory: Path):
    """The learner of one run, trained or read back."""
    settings = {"method": method, "scenario": "class", "stream": "disjoint", "seed": seed}
    return run(directory=directory, data=data, **{**settings, "evaluation.every": every}).learner


def on_ten_classes(data: Dataset, method: str, seed: int, runs: Path) -> dict:
    """Calibration, and AUROC against what is no photograph. The runs are docs/results.md's."""
    learner = trained(data, method, seed, "task", runs / "ten" / method / f"seed-{seed}")
    inputs = {"test": data.test.x, "digits": digit_images(), "noise": noise_images(seed)}
    found = outputs_of(learner, inputs, runs / "outputs" / f"ten-{method}-{seed}.npz")
    known, logits = scores_of(found["test"]), found["test"].logits
    generative = isinstance(learner, DeepCCG)
    return {
        **({"distances": distances(learner, data, seed)} if generative else {}),
        **calibration(logits, data.test.y),
        "tempered": tempered(logits, data.test.y, seed),
        "auroc": {name: auroc(known, scores_of(found[name])) for name in ("digits", "noise")},
    }


def on_eight_classes(data: Dataset, method: str, seed: int, runs: Path) -> dict[str, float]:
    """AUROC against photographs of the two classes that were held out."""
    eight = eight_classes(data, seed)
    learner = trained(eight, method, seed, "end", runs / "eight" / method / f"seed-{seed}")
    unknown = data.test.x[np.isin(data.test.y, held_out_pair(seed))]
    inputs = {"test": eight.test.x, "strangers": unknown}  # the name in files of earlier runs
    found = outputs_of(learner, inputs, runs / "outputs" / f"eight-{method}-{seed}.npz")
    return auroc(scores_of(found["test"]), scores_of(found["strangers"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="where CIFAR-10's parquet files lie; default: the hub")
    parser.add_argument("--runs", type=Path, default=Path("runs/calibration"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/calibration.json"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = load_dataset("cifar10", data_dir=arguments.data_dir)
    results: dict[str, dict[str, dict]] = {method: {} for method in METHODS}
    for step in (on_ten_classes, on_eight_classes):
        for seed in arguments.seeds:
            for method in METHODS:
                found = step(data, method, seed, arguments.runs)
                if step is on_ten_classes:
                    results[method][str(seed)] = found
                else:
                    results[method][str(seed)]["auroc"]["held-out classes"] = found
                print(method, seed, step.__name__, flush=True)
                write_atomically(arguments.out, (json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
