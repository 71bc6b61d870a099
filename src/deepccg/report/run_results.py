"""The results of runs as the command line prints them: tables, closing lines, JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from deepccg.experiment import RunConfig, RunResult, protocol_line
from deepccg.records import Evaluation, RunDirectory, flatten, read_json_object
from deepccg.report.comparisons import Row
from deepccg.report.formatting import differing_fields, memory_words
from deepccg.report.runs import Run
from deepccg.report.table import Table
from deepccg.report.tables import scored_on, summary_table

# Runs that differ in their seed alone share an inner list.
RunsByMethod = Sequence[Sequence[RunResult]]
ConfiguredRun = tuple[RunConfig, RunDirectory]


def run_table(results: RunsByMethod) -> Table:
    """Return a table with a row for each method."""
    return summary_table(list(map(_row, results)), table_title(results[0][0].config))


def run_notes(results: RunsByMethod) -> list[str]:
    """Return what stands below the table: the audits, what memories hold, where the runs are."""
    lines = [line for runs in results for line in _protocol(runs, named=len(results) > 1)]
    held = [f"{_label(runs[0].config)} {_held(runs[0])}" for runs in results]
    parents = sorted({str(runs[0].directory.parent) for runs in results})
    return [
        *lines,
        f"Held at the end: {'; '.join(held)}.",
        f"Run directories: {', '.join(parents)}",
    ]


def run_json(results: RunsByMethod) -> dict[str, Any]:
    """Return every number of the runs as plain JSON values, and what their memories hold."""
    found = summary_json(list(map(_row, results)))
    for entry, runs in zip(found["results"], results, strict=True):
        entry["held"] = asdict(runs[0].learner.memory_usage())
    return found


def recorded_tables(runs: Iterable[ConfiguredRun]) -> Iterator[Table]:
    """Return a table for each title and scoring, from the records alone; nothing is loaded."""

    def key(run: ConfiguredRun) -> tuple[str, str]:
        return table_key(run[0])

    for (title, _), together in groupby(sorted(runs, key=key), key=key):
        by_name: dict[str, list[ConfiguredRun]] = {}
        for config, directory in together:
            by_name.setdefault(config.name(), []).append((config, directory))
        labels = _labels([own[0][0] for own in by_name.values()])
        yield summary_table(list(map(_recorded_row, by_name.values(), labels)), title)


def recorded_json(runs: Sequence[ConfiguredRun]) -> dict[str, Any]:
    """Return the same as ``run_json`` for runs of one method, from the records alone."""
    return summary_json([_recorded_row(runs, runs[0][0].method.name)])


def summary_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Return every number as plain JSON values: fractions, ``None`` where not defined."""
    images, of_images, source = scored_on(rows[0])
    results = [
        {
            "label": row.label,
            "note": row.note,
            "metrics": {
                name: None if value is None else asdict(value)
                for name, value in row.aggregates.items()
            },
            "seeds": {str(seed): dict(values) for seed, values in row.metrics.items()},
            "config": {name: value for name, value in row.config.items() if name != "seed"},
            "held": None,
            "audits": {str(seed): run.audit for seed, run in row.runs.items()},
            "directories": {str(seed): str(run.path) for seed, run in row.runs.items()},
        }
        for row in rows
    ]
    return {"images": images, "of_images": of_images, "source": source, "results": results}


def table_title(config: RunConfig) -> str:
    """Return what the runs of one table have in common."""
    memory = memory_words(config.model_dump()).removesuffix(" in total")
    return f"{config.dataset}, {config.stream.kind}, {config.scenario} scenario, memory {memory}"


def table_key(config: RunConfig) -> tuple[str, str]:
    """Return the title and the scoring: runs that have both in common share a table."""
    return table_title(config), config.evaluation.model_dump_json()


def _row(results: Sequence[RunResult]) -> Row:
    runs = [(each.config, each.directory, each.evaluations, each.audit) for each in results]
    return _row_of(runs, _label(results[0].config))


def _recorded_row(recorded: Sequence[ConfiguredRun], label: str) -> Row:
    runs = [
        (config, each.path, each.evaluations(), read_json_object(each.audit_path))
        for config, each in recorded
    ]
    return _row_of(runs, label)


def _row_of(
    runs: Sequence[tuple[RunConfig, Path, Iterable[Evaluation], Mapping[str, Any] | None]],
    label: str,
) -> Row:
    config = runs[0][0]
    by_seed = {
        each.seed: Run(path, each.model_dump(mode="json"), tuple(evaluations), audit=audit)
        for each, path, evaluations, audit in runs
    }
    return Row(config.name(), config.method.name, label, by_seed)


def _label(config: RunConfig) -> str:
    return config.method.name + ("" if config.preset == "default" else f" ({config.preset})")


def _labels(configs: Sequence[RunConfig]) -> list[str]:
    """Return method and preset, and those fields in which the runs of a method differ."""
    names = list(map(_label, configs))
    flat = [flatten(config.model_dump(mode="json")) for config in configs]
    return [
        ", ".join([name, *(f"{k.removeprefix('method.')} {own[k]}" for k in own if k in fields)])
        for name, own, fields in zip(names, differing_fields(names, flat), flat, strict=True)
    ]


def _protocol(runs: Sequence[RunResult], *, named: bool) -> list[str]:
    """Return the audit's line; several only where seeds differ in what they read or hold."""
    lines = dict.fromkeys(protocol_line(run.audit) for run in runs)
    name = f"protocol ({_label(runs[0].config)}):"
    return [line.replace("protocol:", name, 1) if named else line for line in lines]


def _held(result: RunResult) -> str:
    held = result.learner.memory_usage()
    other = {kind: size for kind, size in held.bytes.items() if kind != "examples" and size}
    parts = [f"{held.examples:,} examples ({held.bytes.get('examples', 0):,} bytes)"]
    parts += [f"{kind} {size:,} bytes" for kind, size in other.items()]
    return " + ".join(parts)
