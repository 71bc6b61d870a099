"""Printing what runs gave."""

import json
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, TypedDict

import typer
from rich.console import Console

if TYPE_CHECKING:
    from deepccg.experiment import RunConfig, RunResult
    from deepccg.records import Evaluation, RunDirectory


def print_results(results: "list[list[RunResult]]", as_json: bool = False) -> None:
    """One table, or one JSON object: a row for each list of runs that differ in their seed."""
    from deepccg.report import result_row, result_table, summary_json

    first = results[0][0]
    rows = [
        result_row(
            _label(runs[0].config),
            {run.config.seed: run.evaluations for run in runs},
            _note(runs[0].config),
        )
        for runs in results
    ]
    scored = _scored(first.config, first.evaluations[-1])
    if as_json:
        summary = summary_json(rows, **scored)
        for entry, runs in zip(summary["results"], results, strict=True):
            entry["config"] = runs[0].config.model_dump(mode="json", exclude={"seed"})
            entry["held"] = asdict(runs[0].learner.memory_usage())
            entry["audits"] = {str(run.config.seed): run.audit for run in runs}
            entry["directories"] = {str(run.config.seed): str(run.directory) for run in runs}
        typer.echo(json.dumps(summary, indent=2, allow_nan=False))
        return
    console = Console()
    console.print(result_table(rows, title=title(first.config), **scored))
    lines = [line for runs in results for line in _protocol(runs, named=len(results) > 1)]
    kept = [f"{_label(runs[0].config)} {_held(runs[0])}" for runs in results]
    where = sorted({str(runs[0].directory.parent) for runs in results})
    text = [*lines, f"Held at the end: {'; '.join(kept)}.", f"Run directories: {', '.join(where)}"]
    console.print("\n".join(text), highlight=False, soft_wrap=True)


def print_recorded(runs: "list[tuple[RunConfig, RunDirectory]]") -> None:
    """A table for each title and scoring, from the records alone; nothing is loaded."""
    from deepccg.report import result_row, result_table

    def table(run: "tuple[RunConfig, RunDirectory]") -> tuple[str, str]:
        return title(run[0]), run[0].evaluation.model_dump_json()

    for _, together in groupby(sorted(runs, key=table), key=table):
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
        final = next(iter(scores[name].values()))[-1]
        scored = _scored(configs[name], final)
        Console().print(result_table(rows, title=title(configs[name]), **scored))


def _labels(configs: "dict[str, RunConfig]") -> dict[str, str]:
    """Method and preset, and those fields in which the runs of a method differ."""
    from deepccg.records import flatten

    flat = {name: flatten(config.model_dump(mode="json")) for name, config in configs.items()}
    labels = {}
    for name, config in configs.items():
        alike = [flat[other] for other, its in configs.items() if _label(its) == _label(config)]
        differing = [key for key in flat[name] if len({str(each.get(key)) for each in alike}) > 1]
        fields = ", ".join(f"{key.removeprefix('method.')} {flat[name][key]}" for key in differing)
        labels[name] = _label(config) + (f", {fields}" if fields else "")
    return labels


def _protocol(runs: "list[RunResult]", named: bool) -> list[str]:
    """The audit's line; more than one only where seeds differ in what they read or hold."""
    from deepccg.experiment import protocol_line

    lines = dict.fromkeys(protocol_line(run.audit) for run in runs)
    name = f"protocol ({_label(runs[0].config)}):"
    return [line.replace("protocol:", name, 1) if named else line for line in lines]


def _held(result: "RunResult") -> str:
    held = result.learner.memory_usage()
    other = {kind: size for kind, size in held.bytes.items() if kind != "examples" and size}
    parts = [f"{held.examples:,} examples ({held.bytes.get('examples', 0):,} bytes)"]
    parts += [f"{kind} {size:,} bytes" for kind, size in other.items()]
    return " + ".join(parts)


class _Scored(TypedDict):
    images: int
    of_images: int
    source: str


def _scored(config: "RunConfig", final: "Evaluation") -> _Scored:
    held_out = config.evaluation.validation is not None
    source = "held-out training images" if held_out else "test images"
    return {"images": final.images, "of_images": final.of_images, "source": source}


def _label(config: "RunConfig") -> str:
    return config.method.name + ("" if config.preset == "default" else f" ({config.preset})")


def _note(config: "RunConfig") -> str:
    return "" if config.stream.joint is None else "offline"


def title(config: "RunConfig") -> str:
    """What the runs of one table have in common."""
    memory = f"{config.memory_per_class} per class" if config.memory is None else f"{config.memory}"
    return f"{config.dataset}, {config.stream.kind}, {config.scenario} scenario, memory {memory}"
