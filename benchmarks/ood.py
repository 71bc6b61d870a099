"""AUROC of ``ood_score`` beside that of the classifier's own density, which has one variance.

Digits and River's image segments: half of the examples of all classes but two are learned, in one
pass and class after class or shuffled, 20 stored of each; the other half is in distribution.
The score has no setting; that it has a covariance was decided on these data sets.
docs/uncertainty.md has the table.

Run it: ``python benchmarks/ood.py``
"""

from collections.abc import Iterator

import numpy as np
import torch
from river.datasets import ImageSegments
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from deepccg import DeepCCGClassifier
from deepccg.records import estimate

SEEDS, STEP, PER_CLASS = range(8), 10, 20


def data_sets() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    yield "digits", *load_digits(return_X_y=True)
    rows = [(list(x.values()), label) for x, label in ImageSegments()]
    yield "image segments", np.array([x for x, _ in rows]), np.array([y for _, y in rows])


def learned(x: np.ndarray, y: np.ndarray, in_order: bool, seed: int) -> DeepCCGClassifier:
    """One pass, ten examples a step, shuffled or class after class."""
    order = np.random.default_rng(seed).permutation(len(y))
    if in_order:
        order = order[np.argsort(y[order], kind="stable")]
    model = DeepCCGClassifier(memory=PER_CLASS * len(np.unique(y)), random_state=seed)
    for rows in np.split(order, range(STEP, len(order), STEP)):
        model.partial_fit(x[rows], y[rows])
    return model


def unit_balls(model: DeepCCGClassifier, x: np.ndarray) -> np.ndarray:
    """The same density without a covariance: DeepCCG's logits are those of its classes."""
    logits = model.learner_.predict_logits(torch.from_numpy(x).to(model.learner_.dtype))
    return -logits.logsumexp(dim=1).numpy()


def ood_inputs(known: np.ndarray, other: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "two further classes": other,
        "known examples, features permuted": known[:, random.permutation(known.shape[1])],
        "normal noise": random.normal(size=(500, known.shape[1])),
    }


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    truth = np.repeat([0, 1], [len(inside), len(outside)])
    return 100 * float(roc_auc_score(truth, np.concatenate([inside, outside])))


def main() -> None:
    torch.set_num_threads(1)
    print(
        "| out of distribution, AUROC % | learned | one variance | `ood_score` |\n"
        "|---|---|---:|---:|"
    )
    for name, raw, y in data_sets():
        x = StandardScaler().fit_transform(raw)
        for in_order in (False, True):
            found: dict[str, list[tuple[float, float]]] = {}
            for seed in SEEDS:
                random = np.random.default_rng(seed)
                away = np.isin(y, random.choice(np.unique(y), 2, replace=False))
                half = random.random(len(y)) < 0.5
                model = learned(x[half & ~away], y[half & ~away], in_order, seed)
                known = x[~half & ~away]
                for kind, other in ood_inputs(known, x[away], seed).items():
                    pair = [
                        auroc(score(known), score(other))
                        for score in (lambda z, m=model: unit_balls(m, z), model.ood_score)
                    ]
                    found.setdefault(kind, []).append((pair[0], pair[1]))
            for kind, pairs in found.items():
                cells = [estimate(list(values)) for values in zip(*pairs, strict=True)]
                shown = " | ".join(f"{c.mean:.1f} ± {c.standard_error:.1f}" for c in cells)
                how = "class after class" if in_order else "shuffled"
                print(f"| {name}: {kind} | {how} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
