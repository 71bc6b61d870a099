"""The records of pretrained.py, and their tables on docs/pretrained.md."""

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from markdown_sections import fill_sections

RECORDS = Path(__file__).with_name("pretrained.jsonl")
PAGE = Path(__file__).parents[1] / "docs" / "pretrained.md"
LABELS = {
    "ccg": "**CCG**",
    "deepccg": "DeepCCG, nothing learned but the means",
    "deepccg-mlp": "DeepCCG, a small network on the embedding",
    "er-ace": "ER-ACE, a linear layer",
    "er-ace-mlp": "ER-ACE, a small network on the embedding",
    "ncm": "nearest mean",
    "sgd": "logistic regression, online",
    "offline": "*logistic regression, all examples at once*",
}
TABLES = {"images": ("cifar10", "cifar100"), "text": ("docstrings",), "sound": ("words",)}
TITLES = {
    "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "docstrings": "six packages",
    "words": "twenty words",
}  # fmt: skip


def records() -> list[dict[str, Any]]:
    lines = RECORDS.read_text(encoding="utf-8").splitlines() if RECORDS.exists() else []
    return [json.loads(line) for line in lines]


def chosen(name: str, method: str) -> dict[str, float]:
    """The setting that was best on held-out examples; of equals the first."""
    found = [
        line for line in records()
        if (line["set"], line["method"], line["split"]) == (name, method, "held-out")
    ]  # fmt: skip
    best: dict[str, float] = max(found, key=lambda line: line["accuracy"])["setting"]
    return best


def table(names: tuple[str, ...]) -> str:
    """Accuracy of each method on the test examples, megabytes held, time of an example."""
    titles = [f"{TITLES[name]}, % | MB | ms" for name in names]
    lines = [f"| | {' | '.join(titles)} |", "|---|" + "---:|---:|---:|" * len(names)]
    tested = [line for line in records() if line["split"] == "test"]
    for method, label in LABELS.items():
        cells = []
        for name in names:
            runs = [line for line in tested if (line["set"], line["method"]) == (name, method)]
            cells += _cells(runs) if runs else [" ", " ", " "]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(runs: list[dict[str, Any]]) -> list[str]:
    accuracies = [100 * run["accuracy"] for run in runs]
    spread = f" ± {stdev(accuracies):.1f}" if len(runs) > 1 else ""
    return [
        f"{fmean(accuracies):.1f}{spread}",
        f"{runs[0]['held'] / 1e6:.2f}",
        f"{fmean(run['ms'] for run in runs):.1f}",
    ]


def write_tables() -> None:
    fill_sections(PAGE, {title: table(names) for title, names in TABLES.items()})
