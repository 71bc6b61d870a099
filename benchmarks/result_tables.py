"""The tables of docs/results.md, from the records of runs. Nothing is computed but statistics."""

from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import mean

from deepccg.methods.deepccg import REMOVED_MODES
from deepccg.records import (
    Estimate,
    Evaluation,
    Interval,
    RecordedRun,
    aggregate,
    estimate,
    find_runs,
    paired_difference,
    paper_cell,
    paper_value,
    precedence,
    summary,
)
from deepccg.report import Run, difference_text, percent, read_run
from deepccg.report.assemble import with_current_defaults
from deepccg.report.formatting import ENOUGH_SEEDS, in_percent

ARCHIVES = [Path(__file__).with_name(name) for name in ("runs.jsonl", "shift.jsonl.gz")]
EARLIER = "earlier-"  # before a preset: what it was when the run was made, and is no longer
LABELS = {
    ("deepccg", "default"): "DeepCCG, `default`",
    ("deepccg", f"{EARLIER}default"): "DeepCCG, earlier `default`",
    ("deepccg", "paper"): "DeepCCG, `paper`",
    ("deepccg", f"{EARLIER}as-printed"): "DeepCCG, gradient stopped",
    ("deepccg", f"{EARLIER}paper"): "DeepCCG, gradient stopped, mean of terms",
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
COLUMNS = [(s, c) for s in ("disjoint", "shifting-window") for c in ("task", "class")]
DEEPCCG, ER = ("deepccg", "default"), ("er", "default")
MEMORY_SIZES, USUAL_MEMORY = (750, 1000, 1250), 1000
Key = tuple[str, str, str, str, str]  # data set, stream, scenario, method, preset
Runs = dict[Key, dict[int, list[Evaluation]]]


@cache
def recorded_runs() -> list[RecordedRun]:
    """All runs that the pages show."""
    return find_runs(ARCHIVES)


def load_runs(memory: int | None = None) -> Runs:
    """Evaluations of all finished test runs by what was run, then by seed.

    Of runs of one configuration and seed the first by ``precedence``.

    Args:
        memory: Only runs with this total of stored examples; ``None``: only those with the paper's
            number per class.
    """
    runs: Runs = defaultdict(dict)
    there = [(each, each.config()) for each in recorded_runs()]
    for each, config in sorted(there, key=lambda run: precedence(run[0].path, run[1])):
        held_out = "validation" in config["evaluation"]
        if not each.finished or held_out or config.get("memory") != memory:
            continue
        run = read_run(each)
        as_now = run is not None and is_as_now(run)
        key = (
            config["dataset"],
            config["stream"]["kind"],
            config["scenario"],
            config["method"]["name"],
            config["preset"] if as_now else EARLIER + config["preset"],
        )
        for cell in (key, *also_serves(key)):
            if config["seed"] not in runs[cell]:
                runs[cell][config["seed"]] = each.evaluations()
    return runs


def is_as_now(run: Run) -> bool:
    """Whether the run's preset is still what it was.

    That of CIFAR-100 had another posterior, which is gone: the same loss from more embeddings. Its
    runs stay in the rows of ``default``, and the page says so.
    """
    had_it_removed = run.config["method"].get("posterior") in REMOVED_MODES
    return had_it_removed or not with_current_defaults(run).changes


def also_serves(key: Key) -> list[Key]:
    """Other cells that the same run fills."""
    dataset, stream, scenario, method, preset = key
    if method == "sgd":  # stores nothing: one run serves both scenarios
        return [(dataset, stream, other, method, preset) for other in ("task", "class")]
    if method == "multi-task" and scenario == "class" and stream == "disjoint":
        # The pool is all data, whatever the stream: the same learner, bit for bit.
        return [(dataset, "shifting-window", scenario, method, preset)]
    return []


def paper_number(key: Key) -> Estimate | None:
    """The paper's mean and standard error, as fractions."""
    dataset, stream, scenario, method, _ = key
    return paper_cell(dataset, stream, scenario, method)


def estimates(runs: dict[int, list[Evaluation]]) -> dict[str, Estimate | None]:
    return aggregate([summary(runs[seed]) for seed in sorted(runs)])


def summary_table(runs: Runs) -> str:
    """DeepCCG in every setting, beside the best of the other online methods."""
    lines = [
        "| Setting | DeepCCG | paper | ER | next best | DeepCCG minus next best, paired | seeds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for dataset, label in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100")):
        for stream, scenario in COLUMNS:
            where = (dataset, stream, scenario)
            found = {row: accuracies(runs, (*where, *row)) for row in LABELS}
            rivals = {row: mean(each.values()) for row, each in found.items() if each}
            best = max(rivals.keys() - _no_rivals(scenario), key=rivals.__getitem__)
            cells = (
                f"{label}, {stream.replace('-', ' ')}, {scenario}-incremental",
                percent(estimate(list(found[DEEPCCG].values()))),
                percent(paper_number((*where, *DEEPCCG))),
                in_percent(rivals[ER]),
                f"{LABELS[best]} {in_percent(rivals[best])}",
                _lead(found[DEEPCCG], found[best]),
                str(len(found[DEEPCCG])),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def faithful_table(runs: Runs) -> str:
    """The preset ``paper`` beside the paper: accuracy, and its lead over ER on the same seeds."""
    lines = [
        "| Setting | DeepCCG, `paper` | the paper's | minus ER, paired | the paper's | seeds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for dataset, label in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100")):
        for stream, scenario in COLUMNS:
            where = (dataset, stream, scenario)
            ours, er = (accuracies(runs, (*where, *row)) for row in (("deepccg", "paper"), ER))
            papers = [paper_number((*where, *row)) for row in (DEEPCCG, ER)]
            if not ours or None in papers:
                continue
            cells = (
                f"{label}, {stream.replace('-', ' ')}, {scenario}-incremental",
                percent(estimate(list(ours.values()))),
                percent(papers[0]),
                _lead(ours, er),
                in_percent(papers[0].mean - papers[1].mean, "+"),
                str(len(ours)),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _no_rivals(scenario: str) -> set[tuple[str, str]]:
    """DeepCCG itself, what is offline, and what cannot be asked in a scenario."""
    needs_tasks = {"packnet"} if scenario == "class" else set()
    return {row for row in LABELS if row[0] in {"deepccg", "multi-task"} | needs_tasks}


def _lead(ours: dict[int, float], others: dict[int, float]) -> str:
    """The paired difference with its interval; of a few seeds, what each says."""
    seeds = sorted(ours.keys() & others.keys())
    if len(seeds) >= ENOUGH_SEEDS:
        return _difference(paired_difference(ours, others))
    return ", ".join(in_percent(ours[seed] - others[seed], "+") for seed in seeds)


def _difference(difference: Interval | None) -> str:
    return difference_text(difference).replace("*", "\\*") if difference else "-"


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
            ours = estimates(runs[key])[f"{scenario}_accuracy"] if key in runs else None
            cells += [percent(ours), percent(paper_number(key))]
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
            ours = estimates(runs[key])["task_accuracy"] if key in runs else None
            cells += [percent(ours), percent(paper_number(key))]
            seeds.append(str(len(runs.get(key, {}))))
        shown = seeds[0] if seeds[0] == seeds[1] else "/".join(seeds)
        lines.append(f"| {label} | {' | '.join(cells)} | {shown} |")
    return "\n".join(lines)


def memory_size_table() -> str:
    """The paper's table of memory sizes: CIFAR-100, shifting window, task-incremental."""
    where = ("cifar100", "shifting-window", "task")
    header = " | ".join(f"{total:,} | paper" for total in MEMORY_SIZES)
    lines = [f"| Method | {header} |", f"|---|{'---:|' * 2 * len(MEMORY_SIZES)}"]
    by_size = {total: load_runs(None if total == USUAL_MEMORY else total) for total in MEMORY_SIZES}
    for method in ("er", "agem", "entropy-ss", "gss", "deepccg"):
        cells = []
        for total, runs in by_size.items():
            key = (*where, method, "default")
            ours = estimates(runs[key])["task_accuracy"] if key in runs else None
            paper = paper_value("memory-size", *where, method, memory=total)
            cells += [percent(ours), percent(paper)]
        lines.append(f"| {LABELS[method, 'default']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def accuracies(runs: Runs, key: Key) -> dict[int, float]:
    """The final accuracy of each seed, in the scenario that was run."""
    name = f"{key[2]}_accuracy"
    return {seed: summary(found)[name] for seed, found in runs.get(key, {}).items()}


def paired_table(runs: Runs, dataset: str) -> str:
    """Every method minus ER on the same seeds: most of the spread between seeds cancels."""
    names = [f"{stream.replace('-', ' ')}, {scenario}" for stream, scenario in COLUMNS]
    lines = [f"| Minus ER, paired | {' | '.join(names)} |", f"|---|{'---:|' * len(COLUMNS)}"]
    for (method, preset), label in {**LABELS, **ABLATION}.items():
        cells = []
        for stream, scenario in COLUMNS:
            where = (dataset, stream, scenario)
            ours, er = (accuracies(runs, (*where, *row)) for row in ((method, preset), ER))
            pointless = method == "packnet" and scenario == "class"
            cells.append("-" if pointless else _difference(paired_difference(ours, er)))
        if method != "er" and set(cells) != {"-"}:
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def paired_leads(runs: Runs, dataset: str, stream: str) -> str:
    """DeepCCG's `default` minus ER on the same seeds."""
    parts = []
    for scenario in ("task", "class"):
        where = (dataset, stream, scenario)
        ours, er = (accuracies(runs, (*where, *row)) for row in (DEEPCCG, ER))
        leads = [100 * (ours[seed] - er[seed]) for seed in sorted(ours.keys() & er.keys())]
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
                gap = 100 * (ours.mean - paper.mean) if paper and ours else 0.0
                if gap < -margin:
                    found.append(f"- {label}, {stream}, {scenario}-incremental: {gap:+.1f}")
    return "\n".join(found) or "None."


def forgetting_table(runs: Runs, dataset: str, stream: str) -> str:
    """What scoring after every task shows beyond the final accuracy."""
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
