"""What a table compares: settings, methods within them, seeds within those."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from deepccg.records import Estimate, Evaluation, Mode, estimate, paper_cell, paper_value
from deepccg.report.names import dataset_name, digest, slug, stream_name
from deepccg.report.runs import Run
from deepccg.report.tables import ResultRow, result_row

# The paper: 500 examples of each class, 10 or 30 of them stored.
PAPER_EXAMPLES = 500
_PAPER_PER_CLASS = {"task": 10, "class": 30}
_PAPER_CLASSES = {"cifar10": 10, "cifar100": 100, "mini-imagenet": 100}


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed alone.

    Args:
        key: Tells this row from all others; letters, digits and hyphens.
        method: The method's name on the command line.
        label: What readers call it; rows that share a label are told apart by it.
        runs: By seed, in order.
    """

    key: str
    method: str
    label: str
    runs: Mapping[int, Run]

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
        """Whether the data were read again and again: an upper bound, not a competitor."""
        return self.config["stream"].get("joint") is not None

    @property
    def evaluations(self) -> list[tuple[Evaluation, ...]]:
        """The scores of each run."""
        return [run.evaluations for run in self.runs.values()]

    @cached_property
    def result(self) -> ResultRow:
        """Every metric over the seeds."""
        runs = {seed: run.evaluations for seed, run in self.runs.items()}
        return result_row(self.label, runs, "offline" if self.offline else "")

    def metric(self, name: str) -> Estimate | None:
        """One metric over the seeds; ``None`` where it is not defined."""
        return self.result.aggregates.get(name)

    def mean_of(self, values: Iterable[float | None]) -> Estimate | None:
        """Some number of each run over the seeds; ``None`` unless every run has it."""
        known = list(values)
        numbers = [value for value in known if value is not None]
        return estimate(numbers) if numbers and len(numbers) == len(known) else None


@dataclass(frozen=True)
class Setting:
    """Runs that may be compared: the same data, stream, scenario, memory and scoring.

    Args:
        dataset: The data set's name on the command line.
        stream: ``disjoint`` or ``shifting-window``.
        scenario: ``task`` or ``class``: whose presets were taken.
        memory: ``10 per class``, ``1000 in total`` or ``none``.
        details: Whatever else was not left at its default, as ``name = value``.
        rows: One for each method, or variant of one.
    """

    dataset: str
    stream: str
    scenario: Mode
    memory: str
    details: tuple[str, ...]
    rows: tuple[Row, ...] = field(repr=False)

    @property
    def other(self) -> Mode:
        """The scenario whose presets were not taken."""
        return "class" if self.scenario == "task" else "task"

    @property
    def title(self) -> str:
        """Short, for a column or a heading."""
        parts = (
            dataset_name(self.dataset),
            stream_name(self.stream),
            f"{self.scenario}-incremental",
        )
        return ", ".join(parts)

    @property
    def subtitle(self) -> str:
        """What the title leaves out."""
        return ", ".join((f"memory {self.memory}", *self.details))

    @property
    def key(self) -> str:
        """A name for links and files."""
        text = "-".join((self.dataset, self.stream, self.scenario, "memory", self.memory))
        return slug(f"{text} {digest(self.details)[:4]}" if self.details else text)

    @property
    def validation(self) -> bool:
        """Whether the scores are of held-out training images."""
        return "validation" in self.rows[0].config["evaluation"]

    @property
    def streamed(self) -> Row:
        """A row that read the stream in its order."""
        return next((row for row in self.rows if not row.offline), self.rows[0])

    def paper(self, row: Row) -> Estimate | None:
        """The paper's number for the same question, if it asked it, and of the same method."""
        stream, evaluation = row.config["stream"], row.config["evaluation"]
        as_there = (
            stream.get("examples_per_class", PAPER_EXAMPLES) == PAPER_EXAMPLES
            and stream.get("classes_per_task") is None
            and not evaluation.keys() & {"validation", "images"}
        )
        if not as_there or not row.first.as_preset:
            return None
        where = (self.dataset, self.stream, self.scenario, row.method)
        if row.config.get("memory_per_class") == _PAPER_PER_CLASS[self.scenario]:
            return paper_cell(*where)
        total = row.config.get("memory")
        usual = _PAPER_PER_CLASS[self.scenario] * _PAPER_CLASSES.get(self.dataset, 0)
        if total is not None and total == usual:
            return paper_cell(*where)
        return paper_value("memory-size", *where, memory=total)
