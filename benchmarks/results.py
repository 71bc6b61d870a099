"""Write docs/results.md, docs/results/, their figures and the numbers in docs/papers.md.

Nothing is computed here but means, standard errors and intervals: the numbers are those of the
runs in runs.jsonl and shift.jsonl.gz, which `deepccg run` and `deepccg archive` wrote, and of
tuning/, which `deepccg tune` wrote. Their commands stand in docs/results/commands.md. The sentences
are those of results/*.md beside this script.

Usage: python benchmarks/results.py
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from closed_form_table import closed_form_table, draw_bytes
from frontier_table import frontier, strong_accuracy, strong_search, strong_table
from markdown_sections import fill_sections
from readings import readings_table
from result_numbers import accuracy, from_paper, minus, paper_minus
from result_tables import (
    COLUMNS,
    LABELS,
    Runs,
    ablation_table,
    cells_below,
    estimates,
    faithful_table,
    forgetting_table,
    load_runs,
    memory_size_table,
    paired_leads,
    paired_table,
    paper_number,
    result_table,
    summary_table,
)
from shift_figure import shift_section
from tuning_table import paired_points, tuning_table

from deepccg.report import percent
from deepccg.report.figures import accuracy_curves, comparison_dots, save

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
TEMPLATES = HERE / "results"
CURVES = ("deepccg", "er", "sgd")  # scored after every task


def draw(runs: Runs) -> None:
    """The README's picture and the comparison with the paper."""
    curves = {}
    for (method, preset), label in LABELS.items():
        found = runs.get(("cifar10", "disjoint", "class", method, preset), {})
        plain = label.replace(", `default`", "").replace("`", "")
        scored_often = all(len(evaluations) > 1 for evaluations in found.values())
        if method in CURVES and found and scored_often:
            curves[plain] = [found[seed] for seed in sorted(found)]
    save(accuracy_curves(curves), DOCS / "images" / "cifar10-disjoint-class.png")
    draw_bytes("cifar10", runs, DOCS / "images" / "cifar10-bytes.png", "CIFAR-10")
    for stream, scenario in COLUMNS:
        rows = {}
        for (method, preset), label in LABELS.items():
            key = ("cifar10", stream, scenario, method, preset)
            if key in runs and (scenario == "task" or method != "packnet"):
                ours = estimates(runs[key])[f"{scenario}_accuracy"]
                rows[label.replace("`", "")] = (ours, paper_number(key))
        title = f"CIFAR-10, {stream.replace('-', ' ')}, {scenario}-incremental"
        picture = DOCS / "images" / f"cifar10-{stream}-{scenario}-paper.png"
        save(comparison_dots(rows), picture, title=title)


def numbers_of(method: str, runs: Runs) -> str:
    """One method's CIFAR-10 numbers beside the paper's, for its entry in docs/papers.md."""
    ours, papers = [], []
    for stream, scenario in COLUMNS:
        key = ("cifar10", stream, scenario, method, "default")
        found = estimates(runs[key])[f"{scenario}_accuracy"] if key in runs else None
        ours.append(percent(found))
        papers.append(percent(paper_number(key)))
    names = [f"{stream}, {scenario}-incremental" for stream, scenario in COLUMNS]
    return "\n".join(
        (
            f"| CIFAR-10 | {' | '.join(names)} |",
            "|---|---:|---:|---:|---:|",
            f"| ours | {' | '.join(ours)} |",
            f"| paper | {' | '.join(papers)} |",
        )
    )


def with_numbers(text: str, runs: Runs) -> str:
    """docs/papers.md with the numbers between its marks replaced."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}\n{numbers_of(match[2], runs)}\n{match[3]}"

    marks = r"(<!-- numbers: (\S+) -->)\n(?:.*\n)*?(<!-- end of numbers -->)"
    return re.sub(marks, block, text)


def filled(template: str, runs: Runs, images: Path) -> str:
    """The template with each {{table DATASET STREAM}}, {{minus ...}} and so on filled.

    Args:
        template: The page.
        runs: What was measured.
        images: Where figures that belong to a table are drawn.
    """
    makers: dict[str, Callable[..., str]] = {
        "closed-form": lambda d: closed_form_table(d, runs),
        "summary": lambda: summary_table(runs),
        "faithful": lambda: faithful_table(runs),
        "table": lambda d, s: result_table(runs, d, s),
        "paired": lambda d: paired_table(runs, d),
        "leads": lambda d, s: paired_leads(runs, d, s),
        "forgetting": lambda d, s: forgetting_table(runs, d, s),
        "below": lambda d: cells_below(runs, d),
        "ablation": lambda d: ablation_table(runs, d),
        "memory-size": lambda: memory_size_table(),
        "shift": lambda d, s: shift_section(d, s, images / f"{d}-{s}-shift.png"),
        "readings": readings_table,
        "strong": strong_table,
        "strong-search": strong_search,
        "strong-accuracy": strong_accuracy,
        "frontier": lambda: frontier(images / "cifar10-frontier.png"),
        "tuned": lambda method: tuning_table(HERE / "tuning" / f"{method}.json"),
        "accuracy": partial(accuracy, runs),
        "from-paper": partial(from_paper, runs),
        "minus": partial(minus, runs),
        "paper-minus": paper_minus,
    }

    def made(match: re.Match[str]) -> str:
        what, *words = match[1].split()
        return makers[what](*words)

    return re.sub(r"\{\{(.+?)\}\}", made, template)


def pages(runs: Runs, images: Path) -> dict[str, str]:
    """The text of every page of results by its path in docs/: the first one, then the folder."""
    return {
        "results.md" if each.stem == "index" else f"results/{each.name}": filled(
            each.read_text(encoding="utf-8"), runs, images
        )
        for each in sorted(TEMPLATES.glob("*.md"))
    }


def main() -> None:
    runs = load_runs()
    for path, text in pages(runs, DOCS / "images").items():
        (DOCS / path).write_text(text, encoding="utf-8")
    papers = (DOCS / "papers.md").read_text(encoding="utf-8")
    (DOCS / "papers.md").write_text(with_numbers(papers, runs), encoding="utf-8")
    fill_sections(
        DOCS / "performance.md",
        {"posterior accuracy": paired_points(HERE / "tuning" / "posterior.json")},
    )
    draw(runs)


if __name__ == "__main__":
    main()
