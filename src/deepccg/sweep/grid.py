"""Grids: the jobs of every combination of settings, and how to split them between machines."""

import hashlib
import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from deepccg.core import Config, InputError
from deepccg.experiment import parse_seeds, resolve, validated
from deepccg.records import flatten, read_toml
from deepccg.sweep.job import Job

MAX_RUNS = 100_000

# The field that each axis sets; without values the preset decides.
_AXES = {
    "datasets": "dataset",
    "streams": "stream.kind",
    "scenarios": "scenario",
    "presets": "preset",
    "memory": "memory",
    "memory_per_class": "memory_per_class",
    "memory_bytes": "memory_bytes",
    "methods": "method.name",
}
_AXIS_OF = {field: axis for axis, field in _AXES.items()}
_AXIS_OF |= {"method": "methods", "stream": "streams", "seed": "seeds"}


class Grid(Config):
    """Every combination of the given values; one run for each.

    >>> grid = Grid(methods=["er", "sgd"], seeds="0-2", fields={"method.lr": [0.1, 0.03]})
    >>> len(grid.jobs())
    12
    """

    methods: tuple[str, ...] = Field((), description="names from `deepccg methods`")
    datasets: tuple[str, ...] = Field((), description="names from `deepccg data`, or folders")
    streams: tuple[str, ...] = Field((), description="kinds of `deepccg stream`, and joint")
    scenarios: tuple[str, ...] = Field((), description="task, class: which presets apply")
    presets: tuple[str, ...] = Field((), description="names of presets, or files")
    memory: tuple[int, ...] = Field((), description="stored examples in total")
    memory_per_class: tuple[int, ...] = Field((), description="the same, per class")
    memory_bytes: tuple[int, ...] = Field((), description="the same, as bytes")
    seeds: tuple[int, ...] = Field((0,), description="numbers, or a text such as 0-4")
    fields: dict[str, Any] = Field({}, description="further axes: any field and its values")
    settings: dict[str, Any] = Field({}, description="fields with one value in all runs")
    grid: tuple["Grid", ...] = Field(
        (), description="sub-grids whose runs are united; a sub-grid inherits what it does not set"
    )

    @field_validator(*_AXES, "seeds", mode="before")
    @classmethod
    def _one_value(cls, value: object, info: ValidationInfo) -> object:
        """Accept a single value for a list of one, and a text for a list of seeds."""
        if info.field_name == "seeds" and isinstance(value, str):
            return parse_seeds(value, "seeds")
        numbers = ("memory", "memory_per_class", "memory_bytes", "seeds")
        single = int if info.field_name in numbers else str
        return (value,) if isinstance(value, single) else value

    @field_validator("fields", "settings")
    @classmethod
    def _flatten(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        flat = flatten(value)
        for field, given in flat.items():
            if field in _AXIS_OF:
                raise ValueError(f"{field} has its own axis: write {_AXIS_OF[field]} = [...]")
            listed = isinstance(given, list | tuple) and given
            if info.field_name == "fields" and not listed:
                raise ValueError(f"{field} should have a list of values; got {given!r}")
        return flat

    def jobs(self) -> list[Job]:
        """Return the runs, each once: all of the first seed, then all of the second, and so on.

        A sweep that is cut short then has paired seeds of everything, not all seeds of one thing.
        """
        jobs: dict[str, Job] = {}
        parts = self.parts()
        runs = sum(part.size for part in parts)
        if runs > MAX_RUNS:
            raise InputError(f"the grid has {runs:,} runs; at most {MAX_RUNS:,} are possible")
        for part in parts:
            configs = [resolve(settings) for settings in part.combinations()]
            for seed, config in itertools.product(part.seeds, configs):
                job = Job(config, seed)
                jobs.setdefault(job.name, job)
        return sorted(jobs.values(), key=lambda job: job.seed)

    def parts(self) -> "list[Grid]":
        """Return grids without sub-grids whose runs together are those of this one."""
        if not self.grid:
            return [self]
        inherited = {name: getattr(self, name) for name in self.model_fields_set - {"grid"}}
        return [leaf for part in self.grid for leaf in part._inherit(inherited).parts()]

    @property
    def size(self) -> int:
        """The number of combinations, seeds included, of a grid without sub-grids."""
        return math.prod(len(values) for values in [self.seeds, *self._axes().values()])

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Yield the settings of each combination, except the seed, of a grid without sub-grids."""
        axes = self._axes()
        for values in itertools.product(*axes.values()):
            yield {**self.settings, **dict(zip(axes, values, strict=True))}

    def _axes(self) -> dict[str, tuple[Any, ...]]:
        axes = {field: getattr(self, axis) for axis, field in _AXES.items()}
        return {field: values for field, values in axes.items() if values} | self.fields

    def _inherit(self, inherited: Mapping[str, Any]) -> "Grid":
        """Return this sub-grid with what it does not set taken from its parent."""
        own = {name: getattr(self, name) for name in self.model_fields_set}
        for table in ("fields", "settings"):
            own[table] = {**inherited.get(table, {}), **own.get(table, {})}
        return Grid(**{**inherited, **own})


def load_grid(
    path: str | os.PathLike[str], *, methods: tuple[str, ...] = (), seeds: tuple[int, ...] = ()
) -> Grid:
    """Read a grid from a TOML file; ``methods`` and ``seeds`` replace those of the file.

    A file cannot make code be imported: ``package.module:Class`` has to be among ``methods``.
    """
    name = Path(path).name
    try:
        content = read_toml(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{name} is not valid TOML: {error}") from None
    given = {"methods": methods, "seeds": seeds}
    overrides = {axis: values for axis, values in given.items() if values}
    tables = content.pop("grid", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{name}: write each part of a grid as a [[grid]] table")
    try:
        grid, *parts = [validated(Grid, table | overrides) for table in (content, *tables)]
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    for method in (method for each in (grid, *parts) for method in each.methods):
        if ":" in method and method not in methods:
            raise InputError(f"{name} names code to import: if you trust it, add --method {method}")
    return grid.model_copy(update={"grid": tuple(parts)})


def shard_of(jobs: Sequence[Job], part: str) -> list[Job]:
    """Return part ``I/N`` of the jobs, the first being ``1/N``; sizes differ by at most one.

    A job's part depends on the jobs' names alone. They are shuffled by a hash: dealt out in order,
    one part might get all runs of the slowest method.
    """
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(f"--shard {part}: write for example 2/10, for the second of ten parts")
    shuffled = sorted(jobs, key=lambda job: hashlib.blake2b(job.name.encode()).digest())
    own = {job.name for job in shuffled[int(found[1]) - 1 :: int(found[2])]}
    return [job for job in jobs if job.name in own]
