"""Which runs may be compared: comparisons, the rows in them, the seeds in those."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from deepccg.records import (
    METHOD_ENTRIES,
    Estimate,
    Evaluation,
    Mode,
    Shift,
    aggregate,
    estimate,
    flatten,
    paper_cell,
    paper_value,
    precedence,
    summary,
)
from deepccg.report.formatting import (
    DATASETS,
    comparison_title,
    differing_fields,
    digest,
    memory_words,
    method_name,
    slug,
)
from deepccg.report.runs import Run

# The paper: 500 examples of each class, 10 or 30 of them stored.
_PAPER_EXAMPLES = 500
_PAPER_PER_CLASS = {"task": 10, "class": 30}
_PAPER_CLASSES = {"cifar10": 10, "cifar100": 100, "mini-imagenet": 100}
# Fields that do not decide a result, and the seed: runs that differ in these alone share a row.
_NOT_DECISIVE = {"seed", "threads", "device", "kernels", "evaluation.shift_images"}


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed alone."""

    key: str  # unique to this row; letters, digits and hyphens
    method: str  # its name on the command line
    label: str  # what readers call it; unique within a comparison
    runs: Mapping[int, Run]  # by seed, in order

    @property
    def first(self) -> Run:
        """The run of the lowest seed."""
        return next(iter(self.runs.values()))

    @property
    def config(self) -> Mapping[str, Any]:
        """What was run, with the first seed."""
        return self.first.config

    @property
    def offline(self) -> bool:
        """Whether the data were read many times: an upper bound, not a competitor."""
        return self.config["stream"].get("joint") is not None

    @property
    def evaluations(self) -> list[tuple[Evaluation, ...]]:
        """The scores of each run."""
        return [run.evaluations for run in self.runs.values()]

    @property
    def shifts(self) -> list[Shift]:
        """The recorded representation shifts of all runs."""
        return [shift for run in self.runs.values() for shift in run.shifts]

    @property
    def note(self) -> str:
        """A remark for tables."""
        return "offline" if self.offline else ""

    @cached_property
    def metrics(self) -> Mapping[int, Mapping[str, float | None]]:
        """Every metric, by seed."""
        return {seed: summary(run.evaluations) for seed, run in self.runs.items()}

    @cached_property
    def aggregates(self) -> Mapping[str, Estimate | None]:
        """Every metric over the seeds; ``None`` where it is not defined."""
        return aggregate(list(self.metrics.values()))

    def metric(self, name: str) -> Estimate | None:
        """Return one metric over the seeds; ``None`` where it is not defined."""
        return self.aggregates.get(name)

    def mean_of(self, values: Iterable[float | None]) -> Estimate | None:
        """Average a number of each run over the seeds; ``None`` unless every run has it."""
        known = list(values)
        numbers = [value for value in known if value is not None]
        return estimate(numbers) if numbers and len(numbers) == len(known) else None


@dataclass(frozen=True)
class Comparison:
    """Runs that may be compared: the same data, stream, scenario, memory and scoring."""

    dataset: str  # its name on the command line
    stream: str  # its kind, such as ``disjoint`` or ``shifting-window``
    scenario: Mode  # whose presets were used
    memory: str  # ``10 per class``, ``1000 in total`` or ``none``
    details: tuple[str, ...]  # what else was not left at its default, in words
    rows: tuple[Row, ...] = field(repr=False)  # one for each method, or variant of one
    distinction: str = ""  # of comparisons that have data, stream and scenario in common

    @property
    def other(self) -> Mode:
        """The scenario whose presets were not used."""
        return "class" if self.scenario == "task" else "task"

    @property
    def title(self) -> str:
        """Short, for a column or a heading; no two comparisons have the same."""
        name = comparison_title(self.dataset, self.stream, self.scenario)
        return f"{name}, {self.distinction}" if self.distinction else name

    @property
    def subtitle(self) -> str:
        """Memory, and what else was not left at its default, in words."""
        return ", ".join(self.parts)

    @property
    def rest(self) -> str:
        """What the title leaves out of the subtitle."""
        return ", ".join(part for part in self.parts if f", {part}," not in f"{self.title},")

    @property
    def parts(self) -> tuple[str, ...]:
        """Memory, and what else was not left at its default."""
        return (f"memory {self.memory}", *self.details)

    @property
    def held_out(self) -> bool:
        """Whether it was scored on held-out training data: no test result, but a choice."""
        return self.rows[0].config["evaluation"].get("validation") is not None

    @property
    def key(self) -> str:
        """A name for links and files."""
        text = "-".join((self.dataset, self.stream, self.scenario, "memory", self.memory))
        return slug(f"{text} {digest(self.details)[:4]}" if self.details else text)

    @property
    def streamed(self) -> Row:
        """A row that read the stream in its order."""
        return next((row for row in self.rows if not row.offline), self.rows[0])

    def paper(self, row: Row) -> Estimate | None:
        """Return the paper's number for the same question and method; ``None`` if it has none."""
        if _unusual_fields(row.config) or not row.first.as_preset:
            return None
        where = (self.dataset, self.stream, self.scenario, row.method)
        per_class, total = row.config.get("memory_per_class"), row.config.get("memory")
        usual = _PAPER_PER_CLASS[self.scenario]
        in_total = usual * _PAPER_CLASSES.get(self.dataset, 0)
        if per_class == usual or (total is not None and total == in_total):
            return paper_cell(*where)
        return paper_value("memory-size", *where, memory=total)


def group_runs(runs: Iterable[Run]) -> list[Comparison]:
    """Group runs into comparisons, by data set, stream and scenario; rows in order of methods.

    Of runs of the same configuration and seed one counts (``precedence``), with the shifts of
    whichever recorded them.
    """
    ordered = sorted(runs, key=lambda run: (_shared_fields(run), _row_order(run), run.seed))
    comparisons = []
    for fields, together in groupby(ordered, key=_shared_fields):
        found = [list(alike) for _, alike in groupby(together, key=_row_order)]
        labels = _labels([runs[0] for runs in found])
        rows = tuple(
            Row(_row_key(runs[0]), _method(runs[0]), label, _by_seed(runs))
            for label, runs in zip(labels, found, strict=True)
        )
        _, dataset, stream, by_class, memory, details = fields
        scenario: Mode = "class" if by_class else "task"
        comparisons.append(Comparison(dataset, stream, scenario, memory, details, rows))
    return _distinguished(comparisons)


def _distinguished(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Give comparisons of the same title what they do not share."""
    together: dict[str, list[Comparison]] = {}
    for each in comparisons:
        together.setdefault(each.title, []).append(each)
    shared = {
        title: set.intersection(*(set(each.parts) for each in alike))
        for title, alike in together.items()
    }
    return [
        replace(each, distinction=", ".join(p for p in each.parts if p not in shared[each.title]))
        for each in comparisons
    ]


def _by_seed(runs: Sequence[Run]) -> dict[int, Run]:
    chosen: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: (run.seed, *precedence(run.path, run.config))):
        first = chosen.get(run.seed)
        if first is None:
            chosen[run.seed] = run
        else:
            shifts, others = first.shifts or run.shifts, (*first.others, run.path)
            chosen[run.seed] = replace(first, shifts=shifts, others=others)
    return chosen


def _shared_fields(run: Run) -> tuple[int, str, str, bool, str, tuple[str, ...]]:
    """Return what all runs of a comparison share; the number orders the data sets."""
    config = run.config
    dataset, by_class = str(config.get("dataset")), config.get("scenario") == "class"
    memory = memory_words(config)
    known = list(DATASETS)
    place = known.index(dataset) if dataset in known else len(known)
    stream = str(config["stream"].get("kind"))
    return place, dataset, stream, by_class, memory, _unusual_fields(config)


def _unusual_fields(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return how the stream and the scoring differ from the paper's, in words."""
    stream = config["stream"]
    examples = stream.get("examples_per_class", _PAPER_EXAMPLES)
    found = {
        "{} examples per class": None if examples == _PAPER_EXAMPLES else examples,
        "{} classes per task": stream.get("classes_per_task"),
        "imbalance {}": stream.get("imbalance"),
        "blur {}": stream.get("blur"),
        "spread {}": stream.get("spread"),
        "{} domains": stream.get("domains"),
        "domains by {}": stream.get("appearance"),
        "scored on {} images": config["evaluation"].get("images"),
        "{} of the training data held out": config["evaluation"].get("validation"),
    }
    return tuple(text.format(value) for text, value in found.items() if value is not None)


def _row_order(run: Run) -> tuple[int, str, str, int, str]:
    """Return a sort key: by method, then preset, then number of changes; equal within a row."""
    method, known = _method(run), list(METHOD_ENTRIES)
    place = known.index(method) if method in known else len(known)
    return place, method, _preset(run), len(run.changes), _row_key(run)


def _row_key(run: Run) -> str:
    return slug(f"{_method(run)}-{digest(result_fields(run))}")


def _labels(runs: Sequence[Run]) -> list[str]:
    """Return a label for each row; equal ones are extended by the fields that differ."""
    differing = differing_fields([run_label(run) for run in runs], list(map(result_fields, runs)))
    return [run_label(run, further) for run, further in zip(runs, differing, strict=True)]


def run_label(run: Run, further: Mapping[str, Any] | None = None) -> str:
    """Return the method, its preset, what differs from that, and ``further`` fields."""
    parts = [preset] if (preset := _preset(run)) else []
    for key, value in {**run.changes, **(further or {})}.items():
        parts.append(f"{key.removeprefix('method.')}={'none' if value is None else value}")
    name = method_name(_method(run))
    return f"{name} ({', '.join(parts)})" if parts else name


def _method(run: Run) -> str:
    return str(run.config["method"].get("name"))


def _preset(run: Run) -> str:
    """Return the preset's name; empty for the default."""
    preset = str(run.config.get("preset", "default"))
    return "" if preset == "default" else preset


def result_fields(run: Run) -> dict[str, Any]:
    """Return every field that decides a result, by its dotted name."""
    return {key: value for key, value in flatten(run.config).items() if key not in _NOT_DECISIVE}
