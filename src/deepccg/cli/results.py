"""Printing the results of runs."""

import json
from typing import TYPE_CHECKING

import typer
from rich.console import Console

if TYPE_CHECKING:
    from deepccg.experiment import RunConfig, RunResult
    from deepccg.records import RunDirectory


def print_results(results: "list[list[RunResult]]", as_json: bool = False) -> None:
    """Print one table, or one JSON object; each list holds runs that differ in their seed."""
    from deepccg.report.run_results import run_json, run_notes, run_table

    if as_json:
        typer.echo(json.dumps(run_json(results), indent=2, allow_nan=False))
        return
    console = Console()
    console.print(run_table(results).terminal())
    console.print("\n".join(run_notes(results)), highlight=False, soft_wrap=True)


def print_recorded(runs: "list[tuple[RunConfig, RunDirectory]]") -> None:
    """Print a table for each title and scoring, from the records alone."""
    from deepccg.report.run_results import recorded_tables

    for table in recorded_tables(runs):
        Console().print(table.terminal())
