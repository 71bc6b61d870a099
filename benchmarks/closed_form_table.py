"""The first table and picture of docs/results.md: fixed features beside learned networks."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from result_tables import COLUMNS, LABELS, Runs, estimates

from deepccg.records import Estimate, RecordedRun, aggregate, find_runs, summary
from deepccg.report import percent
from deepccg.report.figures import description as fig
from deepccg.report.figures import save, series_styles

ARCHIVE = Path(__file__).with_name("closed_form.jsonl")
CLASSES = {"cifar10": 10, "cifar100": 100, "mini-imagenet": 100}
PER_CLASS = {"task": 10, "class": 30}  # the paper's memory
IMAGE_BYTES = {"cifar10": 3088, "cifar100": 3088, "mini-imagenet": 21_184}  # with class and task
UNLIMITED = 10**8

FIXED = {
    ("ccg", "paper"): "**CCG**, the paper's memory",
    ("ccg", "more"): "CCG, the bytes of one network copy more",
    ("ccg", "unlimited"): "CCG, 400 filters",
    ("slda", "paper"): "SLDA",
    ("randumb", "paper"): "RanDumb (pixels beside cosines)",
    ("ncm", "paper"): "NCM, on pixels",
    ("deepccg", "paper"): "DeepCCG on the same features",
    ("er-ace", "paper"): "ER-ACE on the same features",
    ("icarl", "paper"): "iCaRL on the same features",
    ("er", "paper"): "ER on the same features",
    ("derpp", "paper"): "DER++ on the same features",
    ("sgd", "paper"): "SGD on the same features",
}
LEARNED = ("deepccg", "icarl", "er-ace", "derpp", "er", "sgd", "multi-task")

Cell = tuple[str, str]  # stream, scenario


class Row(NamedTuple):
    """One line of the table."""

    label: str
    method: str
    accuracy: Mapping[Cell, Estimate | None]
    bytes: Mapping[str, int]  # by scenario, in addition to the network
    seeds: str  # how many, in each cell


def rows_of(dataset: str, runs: Runs) -> list[Row]:
    """Fixed features first, then the learned network."""
    return [*_fixed_rows(dataset), *_learned_rows(dataset, runs)]


def closed_form_table(dataset: str, runs: Runs) -> str:
    """Accuracy in the four settings, and what is held."""
    names = [f"{stream.replace('-', ' ')}, {scenario}" for stream, scenario in COLUMNS]
    lines = [
        f"| | {' | '.join(names)} | MB, task / class | seeds |",
        f"|---|{'---:|' * (len(COLUMNS) + 2)}",
    ]
    fixed, learned = _fixed_rows(dataset), _learned_rows(dataset, runs)
    for title, rows in (("*fixed features*", fixed), ("*the paper's network, learned*", learned)):
        if not rows:
            continue
        lines.append(f"| {title} |{' |' * (len(COLUMNS) + 2)}")
        for row in rows:
            cells = [percent(row.accuracy.get(cell)) for cell in COLUMNS]
            held = " / ".join(f"{row.bytes[s] / 1e6:.2f}" for s in PER_CLASS if s in row.bytes)
            lines.append(f"| {row.label} | {' | '.join(cells)} | {held} | {row.seeds} |")
    return "\n".join(lines)


def draw_bytes(dataset: str, runs: Runs, path: Path, title: str) -> None:
    """Class-incremental accuracy on disjoint tasks against the bytes held; CCG as one line."""
    found: dict[str, list[tuple[float, Estimate]]] = defaultdict(list)
    methods = {}
    for row in rows_of(dataset, runs):
        label = row.label.replace("*", "").partition(",")[0].partition(" (")[0]
        accuracy, size = row.accuracy.get(("disjoint", "class")), row.bytes.get("class", 0)
        if accuracy is not None and size and row.method != "multi-task":
            found[label].append((size / 1e6, accuracy))
            methods[label] = row.method
    styles = series_styles(methods.items())
    series = tuple(
        fig.Series(
            label,
            styles[label],
            line=tuple((size, 100 * accuracy.mean) for size, accuracy in sorted(points, key=_size)),
            points=tuple(
                fig.Point(size, 100 * accuracy.mean, y_error=fig.error_bar(accuracy))
                for size, accuracy in points
            ),
        )
        for label, points in found.items()
    )
    ticks = tuple((value, f"{value:g}") for value in (0.1, 0.3, 1, 3, 10, 30))
    panel = fig.Panel(
        title=f"{title}: class-incremental accuracy, %",
        x=fig.Axis("MB held in addition to the network", 0.1, 40, ticks, log=True),
        y=fig.rounded_axis("", [0, 75]),
        series=series,
        names="line ends",
        width=640,
        height=300,
        right=170,
    )
    save(fig.Figure((panel,), "Disjoint tasks, one pass. Bars: one standard error."), path)


def _size(point: tuple[float, Estimate]) -> float:
    return point[0]


def _fixed_rows(dataset: str) -> list[Row]:
    by_row: dict[tuple[str, str], dict[Cell, list[RecordedRun]]] = defaultdict(dict)
    for (name, *row), found in _recorded().items():
        if name == dataset:
            method, size, stream, scenario = row
            by_row[method, size][stream, scenario] = found
    return [_fixed_row(label, key[0], by_row[key]) for key, label in FIXED.items() if key in by_row]


def _fixed_row(label: str, method: str, cells: dict[Cell, list[RecordedRun]]) -> Row:
    accuracy: dict[Cell, Estimate | None] = {}
    held: dict[str, int] = {}
    for stream, scenario in COLUMNS:
        # Every run is scored both ways: one of the other scenario serves if there is none.
        there = cells.get((stream, scenario)) or cells.get((stream, "class"))
        if there:
            summaries = [summary(run.evaluations()) for run in there]
            accuracy[stream, scenario] = aggregate(summaries)[f"{scenario}_accuracy"]
            held[scenario] = max(_bytes(run) for run in there)
    return Row(label, method, accuracy, held, _seeds(accuracy))


def _learned_rows(dataset: str, runs: Runs) -> list[Row]:
    rows = []
    for method in LEARNED:
        keys = {cell: (dataset, *cell, method, "default") for cell in COLUMNS}
        found = {cell: runs[key] for cell, key in keys.items() if key in runs}
        if not found:
            continue
        stores = method not in ("sgd", "multi-task")
        accuracy = {
            cell: estimates(evaluations)[f"{cell[1]}_accuracy"]
            for cell, evaluations in found.items()
        }
        held = {
            s: stores * n * CLASSES[dataset] * IMAGE_BYTES[dataset] for s, n in PER_CLASS.items()
        }
        label = LABELS[method, "default"].replace(", `default`", "")
        rows.append(Row(label, method, accuracy, held, _seeds(accuracy)))
    return rows


def _seeds(accuracy: Mapping[Cell, Estimate | None]) -> str:
    """How many seeds the cells have: one number, or the fewest and the most."""
    numbers = {each.n for each in accuracy.values() if each is not None} or {0}
    return "-".join(str(n) for n in sorted({min(numbers), max(numbers)}))


def _bytes(run: RecordedRun) -> int:
    audit = run.audit() or {}
    held: dict[str, Any] = audit.get("memory", {}).get("bytes", {})
    return sum(held.values())


@cache
def _recorded() -> dict[tuple[str, str, str, str, str], list[RecordedRun]]:
    """Runs of the archive by data set, method, size, stream and scenario."""
    found = defaultdict(list)
    for run, config in _finished():
        size = "paper"
        if (given := config.get("memory_bytes")) is not None:
            size = "unlimited" if given >= UNLIMITED else "more"
        where = (config["stream"]["kind"], config["scenario"])
        found[config["dataset"], config["method"]["name"], size, *where].append(run)
    return dict(found)


def _finished() -> Iterator[tuple[RecordedRun, dict[str, Any]]]:
    for run in find_runs([ARCHIVE]) if ARCHIVE.exists() else []:
        if run.finished:
            yield run, run.config()
