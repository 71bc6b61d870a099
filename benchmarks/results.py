"""Write docs/results.md, its figures and the numbers in docs/papers.md from benchmarks/records.

Nothing is computed here but means and standard errors: the numbers are those of the records, which
`deepccg run` wrote. The commands that make them stand in docs/results.md.

Usage: python benchmarks/results.py
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev

from deepccg.records import Estimate, Evaluation, aggregate, find_runs, paper_cell, summary
from deepccg.report import percent, plot_accuracy_over_time, plot_comparison

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
LABELS = {
    ("deepccg", "default"): "DeepCCG, `default`",
    ("deepccg", "paper"): "DeepCCG, `paper`",
    ("deepccg", "as-printed"): "DeepCCG, `as-printed`",
    ("ewc", "default"): "EWC",
    ("packnet", "default"): "PackNet",
    ("er", "default"): "ER-reservoir",
    ("agem", "default"): "A-GEM",
    ("entropy-ss", "default"): "EntropySS (reconstruction)",
    ("gss", "default"): "GSS",
    ("er-ace", "default"): "ER-ACE",
    ("derpp", "default"): "DER++",
    ("esmer", "default"): "ESMER",
    ("icarl", "default"): "iCaRL",
    ("protocl", "default"): "ProtoCL",
    ("infogs", "default"): "InfoGS",
    ("sgd", "default"): "SGD",
    ("multi-task", "default"): "Multi-Task (offline)",
}
ABLATION = {
    ("deepccg", "default"): "DeepCCG, `default`",
    ("deepccg-reservoir", "default"): "DeepCCG-reservoir",
    ("deepccg-standard-head", "default"): "DeepCCG-standardHead",
    ("er", "default"): "ER-reservoir",
}
CURVES = ("deepccg", "er", "sgd")  # scored after every task
Key = tuple[str, str, str, str, str]  # data set, stream, scenario, method, preset
Runs = dict[Key, dict[int, list[Evaluation]]]


def load_runs(directory: Path) -> Runs:
    """Evaluations of all finished test runs by what was run, then by seed."""
    runs: Runs = defaultdict(dict)
    for each in find_runs([directory]):
        config = each.config()
        if not each.finished or "validation" in config["evaluation"]:
            continue
        key = (
            config["dataset"],
            config["stream"]["kind"],
            config["scenario"],
            config["method"]["name"],
            config["preset"],
        )
        runs[key][config["seed"]] = each.evaluations()
        for other in also_serves(key):
            runs[other][config["seed"]] = each.evaluations()
    return runs


def also_serves(key: Key) -> list[Key]:
    """Other cells that the same run fills."""
    dataset, stream, scenario, method, preset = key
    if method == "sgd":  # stores nothing: one run serves both scenarios
        return [(dataset, stream, other, method, preset) for other in ("task", "class")]
    if method == "multi-task" and scenario == "class" and stream == "disjoint":
        # The pool is all data, whatever the stream: the same learner, bit for bit.
        return [(dataset, "shifting-window", scenario, method, preset)]
    return []


def paper_number(key: Key) -> tuple[float, float] | None:
    """The paper's mean and standard error, in percent."""
    dataset, stream, scenario, method, _ = key
    cell = paper_cell(dataset, stream, scenario, method)
    return cell and (round(100 * cell.mean, 6), round(100 * cell.standard_error, 6))


def estimates(runs: dict[int, list[Evaluation]]) -> dict[str, Estimate | None]:
    return aggregate([summary(runs[seed]) for seed in sorted(runs)])


def result_table(runs: Runs, dataset: str, stream: str) -> str:
    """Both scenarios side by side, each from its own runs."""
    lines = [
        "| Method | Task-incremental | paper | Class-incremental | paper | seeds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (method, preset), label in LABELS.items():
        cells, seeds = [], []
        for scenario in ("task", "class"):
            key = (dataset, stream, scenario, method, preset)
            paper = paper_number(key)
            ours = estimates(runs[key])[f"{scenario}_accuracy"] if key in runs else None
            cells += [percent(ours), f"{paper[0]:.1f} ± {paper[1]:.1f}" if paper else "-"]
            seeds.append(str(len(runs.get(key, {}))))
        if seeds != ["0", "0"]:
            shown = seeds[0] if seeds[0] == seeds[1] else "/".join(seeds)
            lines.append(f"| {label} | {' | '.join(cells)} | {shown} |")
    return "\n".join(lines) if len(lines) > 2 else "Not run yet."


def ablation_table(runs: Runs, dataset: str) -> str:
    """The paper's ablation, task-incremental, both streams side by side."""
    streams = ("shifting-window", "disjoint")
    lines = [
        "| Method | Shifting window | paper | Disjoint | paper | seeds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (method, preset), label in ABLATION.items():
        cells, seeds = [], []
        for stream in streams:
            key = (dataset, stream, "task", method, preset)
            paper = paper_number(key)
            ours = estimates(runs[key])["task_accuracy"] if key in runs else None
            cells += [percent(ours), f"{paper[0]:.1f} ± {paper[1]:.1f}" if paper else "-"]
            seeds.append(str(len(runs.get(key, {}))))
        shown = seeds[0] if seeds[0] == seeds[1] else "/".join(seeds)
        lines.append(f"| {label} | {' | '.join(cells)} | {shown} |")
    return "\n".join(lines)


def paired_with_er(runs: Runs, key: Key) -> list[float]:
    """A method's accuracy minus ER's, in points, for each seed that both have."""
    dataset, stream, scenario, *_ = key
    ours, er = runs.get(key, {}), runs.get((dataset, stream, scenario, "er", "default"), {})
    name = f"{scenario}_accuracy"
    both = sorted(ours.keys() & er.keys())
    return [100 * (summary(ours[seed])[name] - summary(er[seed])[name]) for seed in both]


def paired_table(runs: Runs, dataset: str) -> str:
    """Every method minus ER on the same seeds: most of the spread between seeds cancels."""
    columns = [(stream, s) for stream in ("disjoint", "shifting-window") for s in ("task", "class")]
    names = [f"{stream.replace('-', ' ')}, {scenario}" for stream, scenario in columns]
    lines = [f"| Minus ER, paired | {' | '.join(names)} |", f"|---|{'---:|' * len(columns)}"]
    for (method, preset), label in {**LABELS, **ABLATION}.items():
        cells = []
        for stream, scenario in columns:
            differences = paired_with_er(runs, (dataset, stream, scenario, method, preset))
            if len(differences) < 2 or (method == "packnet" and scenario == "class"):
                cells.append("-")
                continue
            error = stdev(differences) / math.sqrt(len(differences))
            cells.append(f"{mean(differences):+.1f} ± {error:.1f}")
        if method != "er" and set(cells) != {"-"}:
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def paired_leads(runs: Runs, dataset: str, stream: str) -> str:
    """DeepCCG's `default` minus ER on the same seeds."""
    parts = []
    for scenario in ("task", "class"):
        leads = paired_with_er(runs, (dataset, stream, scenario, "deepccg", "default"))
        if not leads:
            continue
        each = ", ".join(f"{lead:+.1f}" for lead in leads)
        parts.append(f"{scenario}-incremental {sum(leads) / len(leads):+.1f} points ({each})")
    return f"Lead of `default` over ER on paired seeds: {'; '.join(parts)}." if parts else ""


def cells_below(runs: Runs, dataset: str, margin: float = 3.0) -> str:
    """Every cell whose mean is more than ``margin`` points below the paper's."""
    found = []
    for stream in ("disjoint", "shifting-window"):
        for scenario in ("task", "class"):
            for (method, preset), label in {**LABELS, **ABLATION}.items():
                key = (dataset, stream, scenario, method, preset)
                paper = paper_number(key)
                ours = estimates(runs[key])[f"{scenario}_accuracy"] if key in runs else None
                if paper and ours and 100 * ours.mean < paper[0] - margin:
                    gap = 100 * ours.mean - paper[0]
                    found.append(f"- {label}, {stream}, {scenario}-incremental: {gap:+.1f}")
    return "\n".join(found) or "None."


def forgetting_table(runs: Runs, dataset: str, stream: str) -> str:
    """What scoring after every task tells beyond the final accuracy."""
    lines = [
        "| Method, scenario | forgetting | backward transfer | anytime accuracy |",
        "|---|---:|---:|---:|",
    ]
    for scenario in ("task", "class"):
        for (method, preset), label in LABELS.items():
            key = (dataset, stream, scenario, method, preset)
            if key not in runs:
                continue
            found = estimates(runs[key])
            names = ("forgetting", "backward_transfer", "anytime_accuracy")
            cells = [percent(found[f"{scenario}_{name}"]) for name in names]
            if cells[0] != "-":
                lines.append(f"| {label}, {scenario} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(runs: Runs) -> None:
    """The README's picture and the comparison with the paper."""
    curves = {}
    for (method, preset), label in LABELS.items():
        found = runs.get(("cifar10", "disjoint", "class", method, preset), {})
        plain = label.replace(", `default`", "").replace("`", "")
        scored_often = all(len(evaluations) > 1 for evaluations in found.values())
        if method in CURVES and found and scored_often:
            curves[plain] = [found[seed] for seed in sorted(found)]
    plot_accuracy_over_time(curves, DOCS / "images" / "cifar10-disjoint-class.png")
    columns = [(stream, s) for stream in ("disjoint", "shifting-window") for s in ("task", "class")]
    for stream, scenario in columns:
        rows = {}
        for (method, preset), label in LABELS.items():
            key = ("cifar10", stream, scenario, method, preset)
            if key in runs and (scenario == "task" or method != "packnet"):
                paper = paper_number(key)
                ours = estimates(runs[key])[f"{scenario}_accuracy"]
                fractions = (paper[0] / 100, paper[1] / 100) if paper else None
                rows[label.replace("`", "")] = (ours, fractions)
        plot_comparison(
            rows,
            DOCS / "images" / f"cifar10-{stream}-{scenario}-paper.png",
            title=f"CIFAR-10, {stream.replace('-', ' ')}, {scenario}-incremental",
        )


def numbers_of(method: str, runs: Runs) -> str:
    """One method's CIFAR-10 numbers beside the paper's, for its entry in docs/papers.md."""
    columns = [(s, c) for s in ("disjoint", "shifting-window") for c in ("task", "class")]
    ours, papers = [], []
    for stream, scenario in columns:
        key = ("cifar10", stream, scenario, method, "default")
        paper = paper_number(key)
        found = estimates(runs[key])[f"{scenario}_accuracy"] if key in runs else None
        ours.append(percent(found))
        papers.append(f"{paper[0]:.1f} ± {paper[1]:.1f}" if paper else "-")
    names = [f"{stream}, {scenario}-incremental" for stream, scenario in columns]
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


def filled(template: str, runs: Runs) -> str:
    """The template with each {{table DATASET STREAM}}, {{leads ...}} and so on filled."""
    makers = {
        "table": lambda d, s: result_table(runs, d, s),
        "paired": lambda d: paired_table(runs, d),
        "leads": lambda d, s: paired_leads(runs, d, s),
        "forgetting": lambda d, s: forgetting_table(runs, d, s),
        "below": lambda d: cells_below(runs, d),
        "ablation": lambda d: ablation_table(runs, d),
    }
    lines: Iterable[str] = template.splitlines()
    return "\n".join(
        makers[words[0]](*words[1:])
        if line.startswith("{{") and (words := line.strip("{}").split())
        else line
        for line in lines
    )


def main() -> None:
    runs = load_runs(HERE / "records")
    template = (HERE / "results.template.md").read_text(encoding="utf-8")
    (DOCS / "results.md").write_text(filled(template, runs) + "\n", encoding="utf-8")
    papers = (DOCS / "papers.md").read_text(encoding="utf-8")
    (DOCS / "papers.md").write_text(with_numbers(papers, runs), encoding="utf-8")
    draw(runs)


if __name__ == "__main__":
    main()
