"""Write the tables and the picture of docs/uncertainty.md from benchmarks/calibration.json.

python benchmarks/calibration_page.py
"""

import json
import re
from pathlib import Path

import numpy as np

from deepccg.records import estimate
from deepccg.report.style import (
    INK,
    LINE,
    PALETTE,
    QUIET,
    footnote,
    heading,
    new_figure,
    plain_axes,
)
from deepccg.report.style import save as save_figure

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"

NAMES = {"deepccg": "DeepCCG", "er": "ER"}
SCORES = {  # of the AUROC table: title, method, score
    "DeepCCG, density": ("deepccg", "density"),
    "DeepCCG, confidence": ("deepccg", "confidence"),
    "ER, energy": ("er", "density"),
    "ER, confidence": ("er", "confidence"),
}
FIGURES = {  # in the order of the table, and what they are multiplied by
    "accuracy": 100,
    "confidence": 100,
    "ece": 100,
    "ece_mass": 100,
    "brier": 1,
    "nll": 1,
    "ranking": 100,
}
FEWEST = 1 / 1000  # of all predictions: smaller groups are not drawn
OOD_DATA = {
    "digits": "scikit-learn's digits",
    "noise": "uniform noise",
    "held-out classes": "two held-out classes of CIFAR-10",
}


def cell(values: list[float], factor: float = 100) -> str:
    """Mean and standard error over seeds; percentages with one digit, others with three."""
    found = estimate([factor * value for value in values])
    places = 1 if factor == 100 else 3
    return f"{found.mean:.{places}f} ± {found.standard_error:.{places}f}"


def calibration_table(results: dict) -> str:
    lines = [
        "| | accuracy % | mean confidence % | ECE % | ECE, equal mass % | Brier | log loss "
        "| ranking % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for after in (False, True):
        for method, name in NAMES.items():
            seeds = [each["tempered"] if after else each for each in results[method].values()]
            cells = [cell([seed[key] for seed in seeds], f) for key, f in FIGURES.items()]
            label = f"{name}, temperature fitted" if after else name
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def auroc_table(results: dict) -> str:
    lines = [f"| out of distribution | {' | '.join(SCORES)} |", "|---|" + "---:|" * len(SCORES)]
    for data, title in OOD_DATA.items():
        cells = []
        for method, score in SCORES.values():
            found = [each["auroc"].get(data) for each in results[method].values()]
            known = None not in found
            cells.append(cell([seed[score] for seed in found]) if known else "not run yet")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def pooled(seeds: list[dict]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidence, accuracy and share of each group that is not tiny, all seeds together."""
    tables = np.array([seed["reliability"] for seed in seeds], dtype=float)
    confidence, accuracy, count = tables.transpose(1, 0, 2)
    total = count.sum(axis=0)
    full = total > FEWEST * total.sum()
    means = [np.nansum(v * count, axis=0)[full] / total[full] for v in (confidence, accuracy)]
    return means[0], means[1], total[full] / total.sum()


def draw(results: dict, path: Path) -> None:
    """Accuracy against confidence, before and after a temperature was fitted."""
    figure = new_figure(8, 4)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, after in zip(panels, (False, True), strict=True):
        axes.plot([0, 1], [0, 1], color=LINE, linewidth=1.5, zorder=1)
        axes.text(0.80, 0.84, "calibrated", color=QUIET, fontsize=8, rotation=42, ha="center")
        for (method, name), colour in zip(NAMES.items(), PALETTE, strict=False):
            seeds = list(results[method].values())
            chosen = [seed["tempered"] if after else seed for seed in seeds]
            confidence, accuracy, share = pooled(chosen)
            axes.plot(confidence, accuracy, color=colour, linewidth=1.5, label=name, zorder=2)
            sizes = 8 + 500 * share
            axes.scatter(confidence, accuracy, s=sizes, color=colour, alpha=0.75, zorder=3, lw=0)
        plain_axes(axes)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability of the predicted class")
        heading(axes, "temperature fitted to 500 images" if after else "as predicted")
    panels[0].set_ylabel("share of right predictions")
    legend = panels[0].legend(frameon=False, fontsize=9, loc="upper left", labelcolor=INK)
    for line in legend.get_lines():
        line.set_linewidth(3)
    footnote(
        figure,
        "CIFAR-10, class-incremental, three seeds together. Size of a point: share of predictions; "
        "groups of fewer than one in a thousand left out.",
    )
    save_figure(figure, path)


def filled(page: str, results: dict) -> str:
    """The page with the tables between its marks replaced."""
    tables = {"calibration": calibration_table(results), "auroc": auroc_table(results)}

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}\n{tables[match[2]]}\n{match[3]}"

    return re.sub(r"(<!-- numbers: (\S+) -->)\n(?:.*\n)*?(<!-- end of numbers -->)", block, page)


def main() -> None:
    results = json.loads((HERE / "calibration.json").read_text(encoding="utf-8"))
    page = DOCS / "uncertainty.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    draw(results, DOCS / "images" / "cifar10-reliability.png")


if __name__ == "__main__":
    main()
