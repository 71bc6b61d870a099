"""docs/results/frontier.md: accuracy against cost, as published and with the strong presets."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from deepccg.records import RecordedRun, aggregate, summary
from deepccg.report import percent, read_run
from deepccg.report.catalogue import cost_figures
from deepccg.report.comparisons import Row
from deepccg.report.costs import network_passes
from deepccg.report.figures import save, series_styles
from deepccg.report.formatting import method_name
from deepccg.report.tables import frontier_table
from deepccg.reproduce import FinishedRuns, Plan, Variant, plan
from deepccg.reproduce.plan import STRONG_METHODS

HERE = Path(__file__).parent
ARCHIVES = [HERE / name for name in ("frontier.jsonl", "runs.jsonl", "closed_form.jsonl")]
SEEDS = tuple(range(5))
DATASET, METRIC = "cifar10", "class_accuracy"
PRESETS = ("default", "strong")
ALSO_PUBLISHED = ("mir", "gdumb")  # known from other libraries, without such presets
SETTINGS = [
    (stream, scenario)
    for stream in ("disjoint", "shifting-window")
    for scenario in ("task", "class")
]


def frontier(image: Path) -> str:
    """The table of ``deepccg reproduce frontier``; its figure against passes goes to ``image``."""
    asked = plan("frontier", datasets=[DATASET], seeds=SEEDS)
    rows = [row for variant in asked.variants if (row := _row(variant))]
    methods = {row.method: method_name(row.method) for row in rows}
    lines = {label: [r for r in rows if r.method == name] for name, label in methods.items()}
    styles = series_styles((label, method) for method, label in methods.items())
    save(cost_figures(lines, METRIC, styles)["cost-passes"], image)
    return frontier_table("", rows, METRIC).markdown()


def strong_table() -> str:
    """Every method as published and with the strong presets, in the four settings of CIFAR-10."""
    names = [f"{stream.replace('-', ' ')}, {scenario}" for stream, scenario in SETTINGS]
    lines = [f"| | preset | {' | '.join(names)} | passes | seeds |", f"|---|---|{'---:|' * 6}"]
    variants = [Variant(m, p) for m in STRONG_METHODS for p in PRESETS]
    for variant in [*variants, *map(Variant, ALSO_PUBLISHED)]:
        asked = plan("table1", methods=[str(variant)], datasets=[DATASET], seeds=SEEDS)
        found = {(c.stream, c.scenario): _finished(asked, variant, c) for c in asked.columns}
        counts = sorted({len(runs) for runs in found.values() if runs})
        if not counts:
            continue
        cells = [_accuracy(found[where], where[1]) for where in SETTINGS]
        cost = network_passes(_as_row(variant, _counted(variant) or found["disjoint", "class"]))
        passes = "-" if cost is None else f"{cost.mean:.1f}"
        seeds = "-".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        row = (method_name(variant.method), f"`{variant.preset}`", *cells, passes, seeds)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def strong_accuracy(method: str, preset: str, stream: str, scenario: str) -> str:
    """The mean and standard error of one cell of the table."""
    variant = Variant(method, preset)
    asked = plan("table1", methods=[str(variant)], datasets=[DATASET], seeds=SEEDS)
    (column,) = (c for c in asked.columns if (c.stream, c.scenario) == (stream, scenario))
    return _accuracy(_finished(asked, variant, column), scenario)


def strong_search() -> str:
    """What the search on held-out images found: the best way to train, and ways to predict."""
    found = json.loads((HERE / "tuning" / "strong.json").read_text(encoding="utf-8"))["class"]
    ways = [("own", 1), ("own", 10), ("gaussian", 1), ("gaussian", 10)]
    lines = [
        "| | way to train | of the others | own | own, 10 views | Gaussian | Gaussian, 10 views |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for method in STRONG_METHODS:
        trials = found[method]
        further = [t for t in trials if "views" in t["point"]]
        chosen = {k: v for k, v in further[0]["point"].items() if k not in ("readout", "views")}
        (best,) = (t for t in trials if t["point"] == chosen)
        others = [_percent(t) for t in trials if t not in further and t is not best]
        scores = {(t["point"]["readout"], t["point"]["views"]): t for t in further}
        cells = [f"{_percent(scores.get(way, best)):.1f}" for way in ways]
        way = ", ".join(f"{k} {v}" for k, v in chosen.items() if v is not False).replace("_", " ")
        span = f"{min(others):.1f} to {max(others):.1f}"
        lines.append(f"| {method_name(method)} | {way} | {span} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(trial: Mapping[str, Any]) -> float:
    return 100 * fmean(trial["class"].values())


@cache
def _archived(*, counted: bool) -> FinishedRuns:
    """Those runs whose passes were ``counted``, or all: the older ones were not."""
    return FinishedRuns([path for path in ARCHIVES if not counted or path.name != "runs.jsonl"])


def _finished(
    asked: Plan, variant: Variant, column: object, *, counted: bool = False
) -> dict[int, RecordedRun]:
    found = _archived(counted=counted)
    there = {seed: found.find(asked.config(variant, column, seed)) for seed in SEEDS}
    return {seed: run for seed, run in there.items() if run is not None}


def _counted(variant: Variant) -> dict[int, RecordedRun]:
    """Runs of the frontier."""
    asked = plan("frontier", methods=[str(variant)], datasets=[DATASET], seeds=SEEDS)
    return _finished(asked, variant, asked.columns[0], counted=True)


def _row(variant: Variant) -> Row | None:
    runs = _counted(variant)
    return _as_row(variant, runs) if runs else None


def _as_row(variant: Variant, runs: dict[int, RecordedRun]) -> Row:
    read = {seed: read_run(run) for seed, run in runs.items()}
    preset = "" if variant.preset == "default" else f", `{variant.preset}`"
    label = method_name(variant.method) + preset
    known = {seed: run for seed, run in read.items() if run is not None}
    return Row(str(variant), variant.method, label, known)


def _accuracy(runs: dict[int, RecordedRun], scenario: str) -> str:
    if not runs:
        return "-"
    found = aggregate([summary(run.evaluations()) for run in runs.values()])
    return percent(found[f"{scenario}_accuracy"])
