"""How the defaults of DeepCCGClassifier were chosen, on parts that no table tests on.

Of each data set of ``everyday_data.py`` only the rows are used that are in none of the test parts
of ``sample_efficiency.py``, at most 700 of them; a quarter of these is held out. Streams are
shuffled or class after class; rows come one at a time, ten at a time, or all in one call. Every
candidate but "before" changes what it names; one seed.

Run it: ``python benchmarks/classifier_defaults.py --data-dir DATA``; what is recorded in
benchmarks/classifier_defaults.jsonl is not run again. Without ``--data-dir`` it prints the table.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from everyday_data import Data, data_sets
from sample_efficiency import SPLITS, in_order, split_rows
from sklearn.model_selection import train_test_split

from deepccg import CCGClassifier, DeepCCGClassifier
from deepccg.estimator import classifier as own

RECORDED = Path(__file__).with_suffix(".jsonl")
MOST = 700  # rows
ONE, TEN, ALL = "one at a time", "ten at a time", "one call"


class Both:
    """The closed form and the learned embedding, weighed by how well each foresaw what came."""

    def __init__(self, learned: DeepCCGClassifier, seed: int) -> None:
        self.views = CCGClassifier(random_state=seed), learned
        self.trust = np.zeros(2)  # log weights
        self.fade = 0.98  # of what was foreseen earlier

    def partial_fit(self, x: Any, y: Any, classes: Any = None) -> None:
        if hasattr(self.views[0], "learner_"):
            column = np.searchsorted(self.views[0].classes_, y)
            for view, model in enumerate(self.views):
                found = np.maximum(model.predict_proba(x)[np.arange(len(y)), column], 1e-3)
                self.trust[view] = self.fade * self.trust[view] + np.log(found).mean()
        for model in self.views:
            model.partial_fit(x, y, classes=classes)

    def predict(self, x: Any) -> Any:
        weight = np.exp(self.trust - self.trust.max())
        mixed = sum(w * model.predict_proba(x) for w, model in zip(weight, self.views, strict=True))
        return self.views[0].classes_[np.asarray(mixed).argmax(axis=1)]


BEFORE = {"replay": 10, "repeats": 1, "replay_sampling": "uniform"}  # the method's own


def deep(settings: dict[str, Any] | None = None, **params: Any) -> Callable[[int], Any]:
    """Make a classifier with these fields of DeepCCG and these parameters."""
    merged = BEFORE | (settings or {})
    return lambda seed: DeepCCGClassifier(method_params=merged, random_state=seed, **params)


def fields(**settings: Any) -> Callable[[int], Any]:
    return deep(settings)


def both(**settings: Any) -> Callable[[int], Any]:
    return lambda seed: Both(deep(settings)(seed), seed)


CANDIDATES: dict[str, Callable[[int], Any]] = {
    "before": deep(),
    "CCGClassifier": lambda seed: CCGClassifier(random_state=seed),
    "both views": both(),
    "repeats 3": fields(repeats=3),
    "lr 0.2": fields(lr=0.2),
    "steps of 20 rows": deep(),
    "lr 0.2, repeats 3": fields(lr=0.2, repeats=3),
    "repeats 10": fields(repeats=10),
    "replay 30": fields(replay=30),
    "memory 1000": deep(memory=1000),
    "layers (256, 128)": deep(encoder_params={"layers": (256, 128)}),
    "replay 30, repeats 3": fields(replay=30, repeats=3),
    "replay 30 balanced, repeats 3": fields(replay=30, repeats=3, replay_sampling="balanced"),
    "replay 60 balanced, repeats 3": fields(replay=60, repeats=3, replay_sampling="balanced"),
    "replay 60 balanced": fields(replay=60, replay_sampling="balanced"),
    "replay 60 balanced, repeats 2": fields(replay=60, repeats=2, replay_sampling="balanced"),
    "replay 60 balanced, repeats 5": fields(replay=60, repeats=5, replay_sampling="balanced"),
    "both views, replay 60 balanced, repeats 3": both(
        replay=60, repeats=3, replay_sampling="balanced"
    ),
    "standardize=False": deep(standardize=False),
}
ONE_AT_A_TIME = (
    "before",
    "CCGClassifier",
    "both views",
    "replay 30 balanced, repeats 3",
    "replay 60 balanced, repeats 3",
    "replay 60 balanced",
    "replay 60 balanced, repeats 2",
)


def untested(data: Data) -> Data:
    """The rows that are in no test part."""
    free = np.ones(len(data[0]), dtype=bool)
    for split in SPLITS:
        free[split_rows(data, split)[1]] = False
    rows = np.random.default_rng(0).permutation(np.flatnonzero(free))[:MOST]
    labels, count = np.unique(data[1][rows], return_counts=True)
    rows = rows[np.isin(data[1][rows], labels[count > 1])]
    return data[0][rows], data[1][rows]


def measure(name: str, data: Data, order: str, calls: str) -> dict[str, Any]:
    x, x_held, y, y_held = train_test_split(*data, test_size=0.25, random_state=0)
    own.STEP = int(name.split()[2]) if name.startswith("steps of") else STEP
    turn, begin = in_order(y, order, seed=0), time.process_time()
    if calls == ONE:
        turn = turn[:: 1 + len(turn) // 300]  # in less time
    model = CANDIDATES[name](0)
    size = {ONE: 1, TEN: 10, ALL: len(turn)}[calls]
    for first in range(0, len(turn), size):
        rows = turn[first : first + size]
        model.partial_fit(x[rows], y[rows], classes=np.unique(y))
    right = float((model.predict(x_held) == y_held).mean())
    return {"accuracy": round(100 * right, 2), "seconds": round(time.process_time() - begin, 2)}


STEP = own.STEP


def run(data_dir: Path) -> None:
    done = {key_of(record) for record in recorded()}
    data = [(name, untested(found)) for name, found in data_sets(data_dir)]
    for name in CANDIDATES:
        for data_name, found in data:
            for order in ("shuffled", "class order"):
                for calls in (TEN, ALL, ONE):
                    record = {"candidate": name, "data": data_name, "order": order, "calls": calls}
                    wanted = calls != ONE or name in ONE_AT_A_TIME
                    if wanted and key_of(record) not in done:
                        record |= measure(name, found, order, calls)
                        with RECORDED.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(record) + "\n")


def recorded() -> list[dict[str, Any]]:
    lines = RECORDED.read_text(encoding="utf-8").splitlines() if RECORDED.exists() else []
    return [json.loads(line) for line in lines]


def key_of(record: dict[str, Any]) -> tuple[str, ...]:
    return record["candidate"], record["data"], record["order"], record["calls"]


def table() -> str:
    """Markdown: mean over the data sets, shuffled / class order; seconds of ten at a time."""
    lines = [f"| held out, % | {TEN} | {ALL} | {ONE} | seconds |", "|---|---:|---:|---:|---:|"]
    for name in CANDIDATES:
        cells, seconds = [], 0.0
        for calls in (TEN, ALL, ONE):
            of = [r for r in recorded() if r["candidate"] == name and r["calls"] == calls]
            each = [
                np.mean([r["accuracy"] for r in of if r["order"] == order] or [np.nan])
                for order in ("shuffled", "class order")
            ]
            cells.append(" / ".join(f"{value:.1f}" for value in each) if of else "")
            seconds += sum(r["seconds"] for r in of if calls == TEN)
        lines.append(f"| {name} | {' | '.join(cells)} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="measure what is not recorded yet")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if arguments.data_dir:
        run(arguments.data_dir)
    print(table())


if __name__ == "__main__":
    main()
