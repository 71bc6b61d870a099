"""Experiments as configurations: rows are methods, columns are settings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from deepccg.core import InputError, did_you_mean
from deepccg.experiment import PRESETS, RunConfig, learner_class, resolve
from deepccg.records import Estimate, Mode, paper_value
from deepccg.streams import available
from deepccg.streams.datasets import unknown_dataset


@dataclass(frozen=True)
class Variant:
    """A method under a preset: a row.

    >>> Variant.parse("deepccg@paper"), str(Variant.parse("er"))
    (Variant(method='deepccg', preset='paper'), 'er')
    """

    method: str
    preset: str = "default"

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """Parse ``METHOD`` or ``METHOD@PRESET``, both checked."""
        method, at, preset = text.strip().partition("@")
        learner_class(method)
        if at and preset not in PRESETS:
            raise InputError(f"{text}: write METHOD@PRESET with one of {', '.join(PRESETS)}")
        return cls(method, preset or "default")

    def __str__(self) -> str:
        return self.method if self.preset == "default" else f"{self.method}@{self.preset}"


@dataclass(frozen=True)
class Column:
    """A setting in which every variant is scored: a column.

    Args:
        dataset: As in ``deepccg data``.
        stream: ``disjoint`` or ``shifting-window``.
        scenario: ``task`` or ``class``: decides memory, presets and what is scored.
        memory: Stored examples in total; ``None``: the scenario's usual ones.
    """

    dataset: str
    stream: str
    scenario: Mode
    memory: int | None = None

    @property
    def metric(self) -> str:
        """The name of the metric that is reported."""
        return f"{self.scenario}_accuracy"


Name: TypeAlias = Literal["table1", "ablation", "memory-size", "shift", "frontier"]
EXPERIMENTS: tuple[Name, ...] = get_args(Name)

# What stands above every table of `deepccg reproduce --quick`.
QUICK_NOTE = "Quick look, NOT the paper's experiment: few examples"
_STREAMS = ("shifting-window", "disjoint")
_QUICK_IMAGES = 1000  # that are scored, where the test set is larger
SHIFT_IMAGES = 500  # on CIFAR-100 and MiniImageNet all test images of the first task
_MEMORY_PER_CLASS = (7.5, 10, 12.5)  # 750, 1000 and 1250 in total where there are 100 classes
_TASK_ONLY = {"packnet"}  # cannot predict without a task
STRONG_METHODS = ("er", "er-ace", "derpp", "icarl", "pcr", "scr", "deepccg")  # the preset sets them

# The paper's, in the order of its tables, with both readings of DeepCCG in the first; and accuracy
# against cost of every online method that predicts without a task.
_METHODS: dict[Name, tuple[str, ...]] = {
    "table1": (
        "ewc", "packnet", "er", "agem", "entropy-ss", "gss", "er-ace", "derpp", "esmer", "icarl",
        "deepccg@paper", "deepccg", "sgd", "multi-task",
    ),
    "ablation": ("er", "deepccg-reservoir", "deepccg-standard-head", "deepccg"),
    "memory-size": ("er", "agem", "entropy-ss", "gss", "deepccg"),
    "shift": ("deepccg", "er", "er-ace", "derpp"),
    "frontier": (
        "sgd", "ewc", "er", "agem", "entropy-ss", "gss", "er-ace", "derpp", "esmer", "icarl",
        "infogs", "mir", "pcr", "scr", "gdumb", "protocl", "deepccg", "ncm", "randumb", "slda",
        "ccg", *(f"{m}@strong" for m in STRONG_METHODS),
    ),
}  # fmt: skip
_QUICK_METHODS: dict[Name, tuple[str, ...]] = {
    "table1": ("er", "er-ace", "deepccg", "sgd"),
    "ablation": _METHODS["ablation"],
    "memory-size": ("er", "deepccg"),
    "shift": ("deepccg", "er"),
    "frontier": ("sgd", "er", "deepccg", "ccg"),
}


@dataclass(frozen=True)
class Plan:
    """An experiment: every variant in every column with every seed."""

    name: Name
    variants: tuple[Variant, ...]
    columns: tuple[Column, ...]
    seeds: tuple[int, ...]  # the same for all, so that differences can be taken seed by seed
    quick: bool  # only a small look-alike
    shift_images: int = SHIFT_IMAGES  # of the first task, that are followed for shift

    @property
    def reference(self) -> Variant:
        """What the others are compared with: ER where it is among them, else the first."""
        return Variant("er") if Variant("er") in self.variants else self.variants[0]

    def rows(self, column: Column) -> list[Variant]:
        """Return the variants that can be scored in the column's scenario."""
        with_tasks = column.scenario == "task"
        return [v for v in self.variants if with_tasks or v.method not in _TASK_ONLY]

    def config(self, variant: Variant, column: Column, seed: int) -> RunConfig:
        """Return the configuration of a cell's run: complete."""
        settings: dict[str, Any] = {
            "dataset": column.dataset,
            "stream.kind": column.stream,
            "scenario": column.scenario,
            "method.name": variant.method,
            "preset": variant.preset,
            "memory": column.memory,
            "seed": seed,
            "evaluation.every": "task" if self.name == "frontier" else "end",
            "evaluation.shift_images": self.shift_images if self.name == "shift" else None,
        }
        settings |= _shared(variant.method, column)
        return resolve(settings | _quick(column.dataset) if self.quick else settings)

    def configs(self) -> Iterator[tuple[Variant, Column, RunConfig]]:
        """Yield all runs; every one of a seed before those of the next."""
        for seed in self.seeds:
            for column in self.columns:
                for variant in self.rows(column):
                    yield variant, column, self.config(variant, column, seed)

    def paper(self, variant: Variant, column: Column) -> Estimate | None:
        """Return the paper's number; ``None`` where it has none, and for every quick look."""
        if self.quick or self.name == "shift" or self.name == "frontier":
            return None
        where = (column.dataset, column.stream, column.scenario, variant.method)
        return paper_value(self.name, *where, memory=column.memory)


def plan(
    name: str,
    *,
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    quick: bool = False,
    shift_images: int | None = None,
) -> Plan:
    """Return one of the experiments.

    Args:
        name: One of ``EXPERIMENTS``.
        datasets: Default CIFAR-10 (CIFAR-100 for memory sizes and shift); a quick look takes the
            digits that come with scikit-learn.
        methods: ``METHOD`` or ``METHOD@PRESET``; default those of the paper.
        seeds: Default 0, 1, 2 as the paper has three runs; a quick look two.
        quick: A small version that takes about a minute.
        shift_images: At most so many images are followed, for shift.
    """
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS)
        raise InputError(
            f"unknown experiment {name!r}{hint}: choose one of {', '.join(EXPERIMENTS)}"
        )
    if name != "shift" and shift_images is not None:
        raise InputError(f"--shift-images is for shift: {name} follows no images")
    usual = "cifar100" if name in ("memory-size", "shift") else "cifar10"
    datasets = datasets or ("digits" if quick else usual,)
    for dataset in datasets:
        _check_dataset(dataset)
    return Plan(
        name=name,
        variants=_variants(name, methods, quick),
        columns=tuple(column for each in datasets for column in _columns(name, each)),
        seeds=tuple(seeds or range(2 if quick else 3)),
        quick=quick,
        shift_images=SHIFT_IMAGES if shift_images is None else shift_images,
    )


def _variants(experiment: Name, methods: Sequence[str], quick: bool) -> tuple[Variant, ...]:
    chosen = methods or (_QUICK_METHODS if quick else _METHODS)[experiment]
    variants = tuple(dict.fromkeys(map(Variant.parse, chosen)))
    if experiment == "shift" and Variant("multi-task") in variants:
        raise InputError("multi-task learns all tasks at once: there is no shift to record")
    return variants


def _check_dataset(dataset: str) -> None:
    """Refuse an unknown data set once, before every run does."""
    if dataset in {info.name for info in available()} or dataset.startswith("hf:"):
        return
    if Path(dataset).is_dir():  # a run records its name, not where it is
        folder = Path(dataset).resolve()
        if folder.name != dataset:
            where = f"go to {folder.parent} and give --dataset {folder.name}"
            raise InputError(f"runs of a folder are found again by its name: {where}")
        return
    raise unknown_dataset(dataset)


def _columns(name: Name, dataset: str) -> list[Column]:
    if name == "shift":
        return [Column(dataset, "disjoint", "task")]
    if name == "frontier":
        return [Column(dataset, "disjoint", "class")]
    if name == "memory-size":
        classes = {info.name: info.classes for info in available()}.get(dataset)
        if classes is None:
            raise InputError(f"memory-size needs a data set from `deepccg data`, not {dataset!r}")
        totals = [round(each * classes) for each in _MEMORY_PER_CLASS]
        return [Column(dataset, "shifting-window", "task", memory) for memory in totals]
    scenarios: tuple[Mode, ...] = ("task", "class") if name == "table1" else ("task",)
    return [Column(dataset, stream, scenario) for scenario in scenarios for stream in _STREAMS]


def _shared(method: str, column: Column) -> dict[str, Any]:
    """Return settings by which one run serves several columns."""
    if method == "sgd":  # stores nothing: the same run in both scenarios
        return {"scenario": "task"}
    if method == "multi-task" and column.scenario == "class":  # all data, whatever the stream
        return {"stream.kind": "disjoint"}
    return {}


def _quick(dataset: str) -> dict[str, Any]:
    """Return the settings of a quick look."""
    if dataset == "digits":
        return {"stream.examples_per_class": 50}
    return {"stream.examples_per_class": 20, "evaluation.images": _QUICK_IMAGES}
