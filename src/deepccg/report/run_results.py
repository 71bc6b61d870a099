"""The results of runs as the command line prints them: tables, closing lines, JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from deepccg.experiment import RunConfig, RunResult, protocol_line
from deepccg.records import Evaluation, RunDirectory, dotted, read_json_object
from deepccg.report.summary import ResultRow, Scored, result_row, result_table, summary_json
from deepccg.report.table import Table

# Runs that differ in their seed alone share an inner list.
RunsByMethod = Sequence[Sequence[RunResult]]
RecordedRun = tuple[RunConfig, RunDirectory]


def run_table(results: RunsByMethod) -> Table:
    """Return a table with a row for each method."""
    first = results[0][0]
    scored = _scored(first.config, first.evaluations)
    return result_table(list(map(_row, results)), scored, table_title(first.config))


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
    """Return every number of the runs as plain JSON values."""
    first = results[0][0]
    summary = summary_json(list(map(_row, results)), _scored(first.config, first.evaluations))
    for entry, runs in zip(summary["results"], results, strict=True):
        entry |= {
            "config": _config_json(runs[0].config),
            "held": asdict(runs[0].learner.holdings()),
            "audits": {str(run.config.seed): run.audit for run in runs},
            "directories": {str(run.config.seed): str(run.directory) for run in runs},
        }
    return summary


def recorded_tables(runs: Sequence[RecordedRun]) -> Iterator[Table]:
    """Return a table for each title and scoring, from the records alone; nothing is loaded."""

    def table(run: RecordedRun) -> tuple[str, str]:
        return table_title(run[0]), run[0].evaluation.model_dump_json()

    for (title, _), together in groupby(sorted(runs, key=table), key=table):
        configs: dict[str, RunConfig] = {}
        scores: dict[str, dict[int, list[Evaluation]]] = {}
        for config, directory in together:
            configs.setdefault(config.name(), config)
            scores.setdefault(config.name(), {})[config.seed] = directory.evaluations()
        labels = _labels(configs)
        rows = [
            result_row(labels[name], by_seed, _note(configs[name]))
            for name, by_seed in scores.items()
        ]
        name = next(iter(configs))
        scored = _scored(configs[name], next(iter(scores[name].values())))
        yield result_table(rows, scored, title)


def recorded_json(runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """Return the same as ``run_json`` for runs of one method, from the records alone."""
    config = runs[0][0]
    by_seed = {each.seed: run for each, run in runs}
    scores = {seed: run.evaluations() for seed, run in by_seed.items()}
    row = result_row(config.method.name, scores)
    summary = summary_json([row], _scored(config, scores[config.seed]))
    summary["results"][0] |= {
        "config": _config_json(config),
        "held": None,
        "audits": {str(seed): read_json_object(run.audit_path) for seed, run in by_seed.items()},
        "directories": {str(seed): str(run.path) for seed, run in by_seed.items()},
    }
    return summary


def table_title(config: RunConfig) -> str:
    """Return what the runs of one table have in common."""
    memory = f"{config.memory_per_class} per class" if config.memory is None else f"{config.memory}"
    return f"{config.dataset}, {config.stream.kind}, {config.scenario} scenario, memory {memory}"


def _row(runs: Sequence[RunResult]) -> ResultRow:
    config = runs[0].config
    return result_row(
        _label(config), {run.config.seed: run.evaluations for run in runs}, _note(config)
    )


def _scored(config: RunConfig, evaluations: Sequence[Evaluation]) -> Scored:
    return Scored.at(evaluations[-1], held_out=config.evaluation.validation is not None)


def _config_json(config: RunConfig) -> dict[str, Any]:
    return config.model_dump(mode="json", exclude={"seed"})


def _label(config: RunConfig) -> str:
    return config.method.name + ("" if config.preset == "default" else f" ({config.preset})")


def _labels(configs: Mapping[str, RunConfig]) -> dict[str, str]:
    """Return method and preset, and those fields in which the runs of a method differ."""
    flat = {name: dict(dotted(config.model_dump(mode="json"))) for name, config in configs.items()}
    labels = {}
    for name, config in configs.items():
        alike = [flat[other] for other, its in configs.items() if _label(its) == _label(config)]
        differing = [key for key in flat[name] if len({str(each.get(key)) for each in alike}) > 1]
        fields = ", ".join(f"{key.removeprefix('method.')} {flat[name][key]}" for key in differing)
        labels[name] = _label(config) + (f", {fields}" if fields else "")
    return labels


def _note(config: RunConfig) -> str:
    return "" if config.stream.joint is None else "offline"


def _protocol(runs: Sequence[RunResult], *, named: bool) -> list[str]:
    """Return the audit's line; several only where seeds differ in what they read or hold."""
    lines = dict.fromkeys(protocol_line(run.audit) for run in runs)
    name = f"protocol ({_label(runs[0].config)}):"
    return [line.replace("protocol:", name, 1) if named else line for line in lines]


def _held(result: RunResult) -> str:
    held = result.learner.holdings()
    other = {kind: size for kind, size in held.bytes.items() if kind != "examples" and size}
    parts = [f"{held.examples:,} examples ({held.bytes.get('examples', 0):,} bytes)"]
    parts += [f"{kind} {size:,} bytes" for kind, size in other.items()]
    return " + ".join(parts)
