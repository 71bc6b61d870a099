"""``deepccg run``: learn a stream with one or several methods and seeds, and compare them."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from deepccg.cli.options import (
    CHECKPOINT,
    FIELD,
    OF_PRESET,
    SEEDS_HELP,
    STREAM_HELP,
    DataDirOption,
    OutOption,
    SkipOption,
    TrackOption,
    check_data_dir,
    names,
    panel,
    what,
    where,
)
from deepccg.cli.progress import run_with_progress

if TYPE_CHECKING:
    from deepccg.experiment import RunConfig, RunResult

setting, scoring = panel("Settings"), panel("Scoring")


def run(
    dataset: Annotated[
        str | None,
        what(
            help="A name from `deepccg data`, hf:owner/name, or a folder of class folders.",
            show_default="digits",
        ),
    ] = None,
    stream: Annotated[str | None, what(help=STREAM_HELP, show_default="disjoint")] = None,
    scenario: Annotated[
        str | None,
        what(
            help="task or class: whose preset (memory and so on) is taken. "
            "Every run is scored both ways.",
            show_default="task",
        ),
    ] = None,
    method: Annotated[
        str | None,
        what(
            help="A name from `deepccg methods`, several with commas, or package.module:Class.",
            show_default="deepccg",
        ),
    ] = None,
    seeds: Annotated[str | None, what(help=SEEDS_HELP, show_default="0")] = None,
    memory: Annotated[
        int | None, setting(help="Stored examples in total.", show_default=OF_PRESET)
    ] = None,
    memory_per_class: Annotated[
        int | None, setting(help="Stored examples per class.", show_default=OF_PRESET)
    ] = None,
    memory_bytes: Annotated[
        int | None,
        setting(help="The same as bytes, for every method alike.", show_default=OF_PRESET),
    ] = None,
    preset: Annotated[
        str | None,
        setting(
            help="default, strong (docs/recipes.md), paper, or a file of rules.",
            show_default="default",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        setting(help="A TOML file, such as a run's config.toml."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        setting(
            "--set",
            metavar=FIELD,
            help="Any field, for example method.selector=greedy or network.width=20.",
            show_default=OF_PRESET,
        ),
    ] = None,
    validation: Annotated[
        float | None,
        scoring(
            help="Hold out this share of the training data and score on it; "
            "the test set is not opened.",
            show_default="score on the test set",
        ),
    ] = None,
    eval_every: Annotated[
        str | None,
        scoring(help="When to score: end, task, or a number of batches.", show_default="task"),
    ] = None,
    eval_images: Annotated[
        int | None, scoring(help="Score on at most so many images.", show_default="all")
    ] = None,
    shift_images: Annotated[
        int | None,
        scoring(
            help="Record how each batch moves at most so many test images of the first task; "
            "`deepccg report` draws it."
        ),
    ] = None,
    as_json: Annotated[
        bool, scoring("--json", help="One JSON object on stdout; progress on stderr.")
    ] = False,
    data_dir: DataDirOption = None,
    skip_unreadable: SkipOption = False,
    out: OutOption = Path("runs"),
    device: Annotated[str | None, where(help="cpu, cuda, ...", show_default="cpu")] = None,
    threads: Annotated[int | None, where(help="torch threads.", show_default="1")] = None,
    checkpoint_every: Annotated[str | None, where(**CHECKPOINT)] = None,
    track: TrackOption = None,
) -> None:
    """Learn a stream online and print task- and class-incremental results.

    A run that was interrupted continues when the same command is given again, or with
    `deepccg resume`; a finished one is read back.

    On one core a run takes seconds on digits, about half a minute on cifar10, and five minutes to
    an hour on cifar100.

    **Example:** `deepccg run --dataset digits --method deepccg,er --seeds 0-2`
    """
    from deepccg.experiment import run as run_experiment
    from deepccg.streams import load_dataset

    flags: dict[str, Any] = {
        "dataset": dataset,
        "stream.kind": stream,
        "scenario": scenario,
        "memory": memory,
        "memory_per_class": memory_per_class,
        "memory_bytes": memory_bytes,
        "preset": preset,
        "evaluation.validation": validation,
        "evaluation.every": _number_or_word(eval_every) if eval_every else None,
        "evaluation.images": eval_images,
        "evaluation.shift_images": shift_images,
        "device": device,
        "threads": threads,
    }
    configs = configurations(flags, method, seeds, settings, config)
    check_data_dir(data_dir)
    data = None
    if skip_unreadable:
        data = load_dataset(configs[0][0].dataset, data_dir=data_dir, skip_unreadable=True)

    def run_one(config: "RunConfig") -> "RunResult":
        directory = out / config.name() / f"seed-{config.seed}"
        call = partial(run_experiment, config, directory)
        options = {"checkpoint_every": checkpoint_every, "track": track, "data": data}
        return run_with_progress(call, config, directory, data_dir, **options)

    print_results([[run_one(config) for config in seeds] for seeds in configs], as_json)


def configurations(
    flags: dict[str, Any],
    method: str | None,
    seeds: str | None,
    settings: list[str] | None,
    config: Path | None = None,
) -> "list[list[RunConfig]]":
    """Return what options describe: a list for each method, with a configuration for each seed."""
    from deepccg.experiment import overlay, parse_seeds, resolve

    assigned = dict(assignment(text) for text in settings or [])
    given = overlay(_read_config(config), {**flags, **assigned})
    if method is None and assigned.keys().isdisjoint(("method", "method.name")):
        _refuse_code(given, config)
    numbers = parse_seeds(seeds) if seeds else [given.get("seed", 0)]
    named = [{**given, "method.name": name} for name in names(method)] or [given]
    return [[resolve({**each, "seed": seed}) for seed in numbers] for each in named]


def print_results(results: "list[list[RunResult]]", as_json: bool) -> None:
    """Print one table, or one JSON object; each list holds runs that differ in their seed."""
    from deepccg.report.run_results import run_json, run_notes, run_table

    if as_json:
        typer.echo(json.dumps(run_json(results), indent=2, allow_nan=False))
        return
    console = Console()
    console.print(run_table(results).terminal())
    console.print("\n".join(run_notes(results)), highlight=False, soft_wrap=True)


def _read_config(path: Path | None) -> dict[str, Any]:
    from deepccg.core import InputError
    from deepccg.records import read_toml

    if path is None:
        return {}
    try:
        return read_toml(path)
    except OSError as error:
        raise InputError(f"cannot read --config {path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"--config {path} is not valid TOML: {error}") from None


def _refuse_code(given: dict[str, Any], path: Path | None) -> None:
    """Refuse a method of the user's own that only a file names: files must not import code."""
    from deepccg.core import InputError

    method = given.get("method")
    name = method.get("name") if isinstance(method, dict) else None
    if isinstance(name, str) and ":" in name:
        raise InputError(
            f"--config {path} names code to import: if you trust it, add --method {name}"
        )


def assignment(text: str) -> tuple[str, Any]:
    """Return the field and the value of ``--set FIELD=VALUE``."""
    from deepccg.core import InputError
    from deepccg.records import parse_toml

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"--set {text}: write FIELD=VALUE, for example method.selector=greedy")
    try:
        return key, parse_toml(f"value = {value}")["value"]
    except ValueError:
        return key, value


def _number_or_word(text: str) -> int | str:
    return int(text) if text.isdecimal() and len(text) < 19 else text
