"""From run directories to the report: rows completed, compared, and described."""

import contextlib
import os
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from deepccg.core import DeepCCGError, InputError, validated
from deepccg.experiment import (
    PRESETS,
    SUCCESSORS,
    RunConfig,
    folder_of,
    protocol_line,
    resolve,
    resolve_recorded,
    resume_command,
    run_command,
    stored_examples,
)
from deepccg.methods import METHODS
from deepccg.records import RecordedRun, RecordError, RunDirectory, find_runs, flatten
from deepccg.report.catalogue import RowDetails, export_report
from deepccg.report.comparisons import Comparison, Row, group_runs
from deepccg.report.figures import Stored
from deepccg.report.formatting import seeds_text
from deepccg.report.page import report_page
from deepccg.report.runs import Run, read_any_run

# What is learned, how, and how it is read; data, memory and scoring are in a table's heading.
_COMPARED = ("method.", "network.", "stream.batch_size", "stream.joint", "stream.epochs")


@dataclass(frozen=True)
class Report:
    """Everything that a page shows."""

    comparisons: Sequence[Comparison]  # the rows, grouped by what may be compared
    details: Mapping[str, RowDetails]  # of each row, by its key
    left_out: Sequence[str]  # directories that are not shown, each with the reason
    unfinished: Sequence[Run] = ()  # runs that have not reached their end

    @property
    def n_runs(self) -> int:
        """How many runs are shown."""
        return sum(len(row.runs) for each in self.comparisons for row in each.rows)

    def page(
        self, title: str = "deepccg report", images_per_class: int = 10, *, live: bool = False
    ) -> str:
        """Return the HTML page; see ``report_page``."""
        return report_page(
            self.comparisons,
            self.details,
            title,
            self.left_out,
            unfinished=self.unfinished,
            images_per_class=images_per_class,
            live=live,
        )

    def export(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write all tables and figures as files; see ``export_report``."""
        return export_report(self.comparisons, self.details, directory)


@dataclass(frozen=True)
class Known:
    """What was read for one report and serves the next: runs and rows whose files are the same."""

    runs: dict[Path, tuple[object, Run]] = field(default_factory=dict)
    details: dict[str, tuple[object, RowDetails]] = field(default_factory=dict)


def assemble_report(paths: Iterable[str | os.PathLike[str]], *, with_memory: bool = True) -> Report:
    """Read run directories, or the runs below; with each row's first memory if asked for.

    Raises:
        InputError: If there is no run.
    """
    paths = list(paths)
    report = read_report(paths, Known(), with_memory=with_memory)
    if not report.comparisons and not report.unfinished:
        reason = f" ({report.left_out[0]})" if report.left_out else ""
        raise InputError(f"there is no run in {', '.join(map(str, paths))}{reason}")
    return report


def read_report(
    paths: Iterable[str | os.PathLike[str]], known: Known, *, with_memory: bool = True
) -> Report:
    """As ``assemble_report``, also of no run at all; reads only what ``known`` does not have."""
    runs, left_out = _read_runs(find_runs(paths), known)
    comparisons = group_runs(run for run in runs if run.finished)
    rows = [row for comparison in comparisons for row in comparison.rows]
    details = {row.key: _known_details(row, known, with_memory=with_memory) for row in rows}
    unfinished = [replace(run, resume=_resume(run)) for run in runs if not run.finished]
    return Report(comparisons, details, left_out, unfinished)


def with_current_defaults(run: Run) -> Run:
    """Add fields that are younger than the run, and what differs from its preset.

    A run that this version cannot interpret stays as recorded.
    """
    if str(run.config["method"].get("name")) not in METHODS:
        return run
    try:
        config = resolve_recorded(run.config)
        preset = SUCCESSORS.get(config.preset, config.preset)
        config = config.model_copy(update={"preset": preset})
        changes = _changes(config, config.preset)
        as_preset = any(not _changes(config, preset) for preset in PRESETS)
    except DeepCCGError:  # fields that this version does not take
        return run
    fields = config.model_dump(mode="json", exclude_none=True)
    return replace(run, config=fields, changes=changes, as_preset=as_preset)


completed = with_current_defaults  # its name in ``deepccg.cli.completing``, deprecated


def _known_details(row: Row, known: Known, *, with_memory: bool) -> RowDetails:
    stamp = [(run.path, known.runs.get(run.path, (None,))[0]) for run in row.runs.values()]
    there = known.details.get(row.key)
    if there is None or there[0] != stamp or any(each is None for _, each in stamp):
        there = known.details[row.key] = stamp, _row_details(row, with_memory=with_memory)
    return there[1]


def _row_details(row: Row, *, with_memory: bool) -> RowDetails:
    """Return the command, the audits and, if asked for, the stored examples of a row."""
    protocols = {seed: _protocol(run) for seed, run in row.runs.items()}
    stored = _stored(row.first.path) if with_memory else "not asked for"
    return RowDetails(_command(row), protocols, stored)


def _read_runs(directories: Iterable[RecordedRun], known: Known) -> tuple[list[Run], list[str]]:
    """Return runs, finished or not, and what is left out with the reason."""
    found, left_out = [], []
    for directory in directories:
        try:
            found.append(_known_run(directory, known))
        except RecordError as error:
            warnings.warn(f"left out: {error}", stacklevel=4)
            left_out.append(str(error))
    return found, left_out


def _known_run(recorded: RecordedRun, known: Known) -> Run:
    if not isinstance(recorded, RunDirectory):
        return with_current_defaults(read_any_run(recorded))
    stamp = recorded.stamp  # before the files are read: what changes meanwhile is read again
    there = known.runs.get(recorded.path)
    if there is None or there[0] != stamp:
        run = with_current_defaults(read_any_run(recorded))
        there = known.runs[recorded.path] = stamp, run
    return there[1]


def _changes(config: RunConfig, preset: str) -> dict[str, Any]:
    """Return the fields in which a run differs from what ``preset`` sets for it."""
    question = {"method": config.method.name, "dataset": config.dataset}
    question |= {"stream": config.stream.kind, "scenario": config.scenario}
    there = _preset_fields(preset=preset, **question)
    return {key: value for key, value in _compared(config).items() if value != there.get(key)}


@cache
def _preset_fields(**settings: str) -> dict[str, Any]:
    return _compared(resolve(settings))


def _compared(config: RunConfig) -> dict[str, Any]:
    fields = flatten(config.model_dump(mode="json"))
    return {key: value for key, value in fields.items() if key.startswith(_COMPARED)}


def _protocol(run: Run) -> str:
    if run.audit is None:
        return (
            "protocol: no audit.json in the run directory: it was not kept, or an earlier version "
            "began it"
        )
    try:
        return protocol_line(dict(run.audit))
    except (KeyError, TypeError, ValueError, AttributeError):
        return "protocol: audit.json cannot be read"


def _command(row: Row) -> str:
    """Return the command of all seeds; with the recorded file where flags cannot express it."""
    seeds = seeds_text(row.runs)
    dataset = str(row.config.get("dataset"))
    data_dir = None if dataset == "digits" or folder_of(dataset) else "DATA"
    with contextlib.suppress(InputError):
        if command := run_command(validated(RunConfig, row.config), seeds, data_dir):
            return command
    words = ["deepccg", "run", "--config", str(row.first.path / "config.toml"), "--seeds", seeds]
    return shlex.join([*words, *(["--data-dir", data_dir] if data_dir else [])])


def _resume(run: Run) -> str:
    data_dir = "DATA" if folder_of(str(run.config.get("dataset"))) else None
    return resume_command(run.path, data_dir, str(run.config["method"].get("name")))


def _stored(directory: Path) -> Stored | str:
    """Return the stored examples of a run, or why they are not shown."""
    target = RunDirectory(directory)
    if not target.checkpoint_path.exists() and not target.previous_path.exists():
        return "no checkpoint in the run directory: what the memory held is not known"
    try:
        held = stored_examples(directory)
    except (DeepCCGError, RecordError) as error:
        return str(error)
    if len(held.y) == 0:
        return "stores no examples"
    if held.x.ndim != 4 or held.x.dtype != np.uint8:
        return "its examples are vectors, not images"
    return Stored(held.x.astype(np.uint8), held.y, held.classes, held.class_names)
