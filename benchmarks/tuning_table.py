"""The trials of `deepccg tune` beside the paper's choices, for docs/results.md."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from deepccg.records import mean_interval, paper_tables

PAPER_ROWS = {  # (method, scenario) to the paper's table of choices
    ("ewc", "task"): "EWC lambda task-incremental",
    ("ewc", "class"): "EWC lambda class-incremental",
    ("packnet", "task"): "PackNet share task-incremental",
}


def tuning_table(path: Path) -> str:
    """Points down, searches across; the chosen in bold, the paper's choice below."""
    if not path.exists():
        return "Not run yet."
    searches: Sequence[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["searches"]
    names = [
        f"{s['settings']['stream.kind'].replace('-', ' ')}, {s['settings']['scenario']}"
        for s in searches
    ]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for trials in zip(*(search["trials"] for search in searches), strict=True):
        cells = [_cell(trial, search) for trial, search in zip(trials, searches, strict=True)]
        lines.append(f"| {_point(trials[0]['point'])} | {' | '.join(cells)} |")
    paper = [_paper(search["settings"]) for search in searches]
    if any(paper):
        lines.append(f"| *the paper's choice* | {' | '.join(value or '-' for value in paper)} |")
    return "\n".join(lines)


def paired_points(path: Path) -> str:
    """Each point's accuracy, and its difference to the first point on the same seeds."""
    searches: Sequence[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["searches"]
    lines = [
        "| | scenario | accuracy | minus the first, each seed | mean and 95 % interval |",
        "|---|---|---:|---:|---:|",
    ]
    for search in searches:
        first = search["trials"][0]["scores"]
        for trial in search["trials"]:
            scores = trial["scores"]
            label = f"{_point(trial['point'])} | {search['settings']['scenario']}"
            accuracy = mean_interval([100 * score for score in scores.values()]).value
            line = f"| {label} | {accuracy:.1f} |"
            if scores is first:
                lines.append(f"{line} | |")
                continue
            differences = [100 * (scores[seed] - first[seed]) for seed in first]
            found = mean_interval(differences)
            each = ", ".join(f"{difference:+.1f}" for difference in differences)
            lines.append(
                f"{line} {each} | {found.value:+.1f} ({found.low:+.1f} to {found.high:+.1f}) |"
            )
    return "\n".join(lines)


def _cell(trial: Mapping[str, Any], search: Mapping[str, Any]) -> str:
    scores = [100 * score for score in trial["scores"].values()]
    if trial["errors"]:
        return "failed"
    text = f"{mean(scores):.1f}"
    if len(scores) > 1:
        text += f" ± {stdev(scores) / math.sqrt(len(scores)):.1f}"
    return f"**{text}**" if trial["point"] == search["best"] else text


def _point(point: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name.removeprefix('method.')}` = {value}" for name, value in point.items())


def _paper(settings: Mapping[str, Any]) -> str | None:
    row = PAPER_ROWS.get((settings["method.name"], settings["scenario"]))
    if row is None:
        return None
    column = paper_tables()["columns"].index(f"{settings['dataset']}/{settings['stream.kind']}")
    return str(paper_tables()["hyperparameters"][row][column])
