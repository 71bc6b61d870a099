"""How near each reading of the paper comes to its numbers, on held-out training images.

Every reading of what the paper leaves open about DeepCCG (docs/papers.md) is run in the four
columns of Table 1, and ER beside it. What counts is the pattern: DeepCCG minus ER, by column.
A fifth (CIFAR-100: a tenth) of the training images is scored; the test images are not opened.

Run it: ``python benchmarks/readings.py --data-dir DATA``. Finished runs are read back; the scores
are in ``benchmarks/tuning/readings.json``, and ``--table`` prints them.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from held_out import score

from deepccg.records import paper_value, write_atomically

FOUND = Path(__file__).parent / "tuning" / "readings.json"
COLUMNS = [
    (stream, scenario)
    for scenario in ("task", "class")
    for stream in ("disjoint", "shifting-window")
]
# Fields of the reading that stops the gradient, and of the others beside them.
BOTH = {"mean_gradient": True, "reduction": "sum"}
STOPPED_MEAN = {
    "reduction": "mean", "variance": "shared", "embedding_scale": 1.0, "replay_mask": "task",
    "absent": "drop", "mean_gradient": False, "selector": "lasso", "target": "printed",
}  # fmt: skip
READINGS: Mapping[str, Mapping[str, Any]] = {
    "gradient stopped at the means, mean over the terms": {},
    "gradient through the means": {"method.mean_gradient": True},
    "sum over the terms": {"method.reduction": "sum"},
    "both": {},
    "both, a variance per class": {"method.variance": "per-class"},
    "both, a linear layer behind the embedding": {"network.remap": True},
    "both, means weighed by what examples stand for": {"method.target": "evidence"},
    "both, replays compared with all classes seen": {"method.replay_mask": "seen"},
    "both, Eq. 10 itself instead of the lasso": {"method.selector": "greedy"},
    "both, classes without a stored example by their batch": {"method.absent": "batch"},
}


def settings(dataset: str, stream: str, scenario: str, reading: str | None) -> dict[str, Any]:
    """What a run of a reading sets, or of ER."""
    common: dict[str, Any] = {
        "dataset": dataset,
        "stream.kind": stream,
        "scenario": scenario,
        "evaluation.every": "end",
    }
    common["evaluation.validation"] = 0.2 if dataset == "cifar10" else 0.1
    if reading is None:
        return common | {"method.name": "er"}
    fields: dict[str, Any] = {"method.name": "deepccg"}
    fields |= {f"method.{name}": value for name, value in STOPPED_MEAN.items()}
    if dataset == "cifar100":  # an exact step with gradients through the means takes 20 of ER's
        fields["method.posterior"] = "sampled"
    if reading.startswith("both"):
        fields |= {f"method.{name}": value for name, value in BOTH.items()}
    return common | fields | READINGS[reading]


def main() -> None:
    """Run readings, or print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--dataset", default="cifar10", choices=["cifar10", "cifar100"])
    parser.add_argument("--readings", help="their numbers from 0, or er; default all")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--found", type=Path, default=FOUND, help="where the scores go")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        found = json.loads(options.found.read_text(encoding="utf-8"))
        print("\n\n".join(table(rows, dataset) for dataset, rows in found.items()))
        return
    named = [None, *READINGS]
    if options.readings:
        numbers = options.readings.split(",")
        named = [None if n == "er" else list(READINGS)[int(n)] for n in numbers]
    for reading in named:
        runs = [settings(options.dataset, *column, reading) for column in COLUMNS]
        seeds = [int(seed) for seed in options.seeds.split(",")]
        scores = score(
            runs, out=options.out, data_dir=options.data_dir, jobs=options.jobs, seeds=seeds
        )
        found = json.loads(options.found.read_text()) if options.found.exists() else {}
        rows = found.setdefault(options.dataset, {})
        rows[reading or "ER"] = {"-".join(c): s for c, s in zip(COLUMNS, scores, strict=True)}
        write_atomically(options.found, (json.dumps(found, indent=1) + "\n").encode())


def table(rows: Mapping[str, Any], dataset: str) -> str:
    """A reading a row: accuracy, then DeepCCG minus ER, then that minus the paper's."""
    paper = {c: [_paper(dataset, *c, method) for method in ("deepccg", "er")] for c in COLUMNS}
    names = [f"{stream.replace('-', ' ')}, {scenario}" for stream, scenario in COLUMNS]
    lines = [f"| | {' | '.join(names)} | distance |", "|---|" + "---:|" * (len(COLUMNS) + 1)]
    for reading in [*READINGS, "ER"]:
        texts, misses = [], []
        for column in COLUMNS if reading in rows else ():
            own, er = (_mean(rows[row]["-".join(column)], column[1]) for row in (reading, "ER"))
            misses.append(own - er - (paper[column][0] - paper[column][1]))
            lead = "" if reading == "ER" else f" ({own - er:+.1f}, {misses[-1]:+.1f})"
            texts.append(f"{own:.1f}{lead}")
        if texts:
            distance = "" if reading == "ER" else f"{mean(map(abs, misses)):.1f}"
            lines.append(f"| {reading} | {' | '.join(texts)} | {distance} |")
    leads = " | ".join(f"{ours:.1f} ({ours - er:+.1f})" for ours, er in paper.values())
    lines.append(f"| *the paper's DeepCCG* | {leads} | |")
    return "\n".join(lines)


def readings_table(dataset: str) -> str:
    """What was found of a data set, for the pages of results."""
    return table(json.loads(FOUND.read_text(encoding="utf-8"))[dataset], dataset)


def _mean(cell: Mapping[str, Any], scenario: str) -> float:
    return 100 * mean(cell[scenario].values())


def _paper(dataset: str, stream: str, scenario: str, method: str) -> float:
    value = paper_value("table1", dataset, stream, scenario, method)
    assert value is not None
    return 100 * value.mean


if __name__ == "__main__":
    main()
