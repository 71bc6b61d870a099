"""Printing what runs gave."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, TypedDict

import typer
from rich.console import Console

if TYPE_CHECKING:
    from deepccg.experiment import RunConfig, RunResult


def print_results(results: "list[list[RunResult]]", as_json: bool = False) -> None:
    """One table, or one JSON object: a row for each list of runs that differ in their seed."""
    from deepccg.report import result_row, result_table, summary_json

    first = results[0][0]
    rows = [
        result_row(
            _label(runs[0].config),
            {run.config.seed: run.evaluations for run in runs},
            "" if runs[0].config.stream.joint is None else "offline",
        )
        for runs in results
    ]
    scored = _scored(first)
    if as_json:
        summary = summary_json(rows, **scored)
        for entry, runs in zip(summary["results"], results, strict=True):
            entry["config"] = runs[0].config.model_dump(mode="json", exclude={"seed"})
            entry["held"] = asdict(runs[0].learner.holdings())
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


def _protocol(runs: "list[RunResult]", named: bool) -> list[str]:
    """The audit's line; more than one only where seeds differ in what they read or hold."""
    from deepccg.experiment import protocol_line

    lines = dict.fromkeys(protocol_line(run.audit) for run in runs)
    name = f"protocol ({_label(runs[0].config)}):"
    return [line.replace("protocol:", name, 1) if named else line for line in lines]


def _held(result: "RunResult") -> str:
    held = result.learner.holdings()
    other = {kind: size for kind, size in held.bytes.items() if kind != "examples" and size}
    parts = [f"{held.examples:,} examples ({held.bytes.get('examples', 0):,} bytes)"]
    parts += [f"{kind} {size:,} bytes" for kind, size in other.items()]
    return " + ".join(parts)


class _Scored(TypedDict):
    images: int
    of_images: int
    source: str


def _scored(result: "RunResult") -> _Scored:
    final = result.evaluations[-1]
    held_out = result.config.evaluation.validation is not None
    source = "held-out training images" if held_out else "test images"
    return {"images": final.images, "of_images": final.of_images, "source": source}


def _label(config: "RunConfig") -> str:
    return config.method.name + ("" if config.preset == "default" else f" ({config.preset})")


def title(config: "RunConfig") -> str:
    """What the runs of one table have in common."""
    memory = f"{config.memory_per_class} per class" if config.memory is None else f"{config.memory}"
    return f"{config.dataset}, {config.stream.kind}, {config.scenario} scenario, memory {memory}"
