"""``deepccg run``: learn a stream with one or several methods and seeds, and compare them."""

import contextlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from deepccg.core import StepInfo
    from deepccg.experiment import RunConfig, RunResult

PANEL_WHAT, PANEL_HOW, PANEL_SCORE, PANEL_WHERE = "What", "Settings", "Scoring", "Where"


def run(
    dataset: Annotated[
        str | None,
        typer.Option(
            help="A name from `deepccg data`, hf:owner/name, or a folder of class folders.",
            rich_help_panel=PANEL_WHAT,
        ),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            help="disjoint, shifting-window, or joint (offline).", rich_help_panel=PANEL_WHAT
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="task or class: whose preset (memory and so on) is taken. "
            "Every run is scored both ways.",
            rich_help_panel=PANEL_WHAT,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="A name from `deepccg methods`, several with commas, or package.module:Class.",
            rich_help_panel=PANEL_WHAT,
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="For example 0, 0-2 or 0,3,5.", rich_help_panel=PANEL_WHAT)
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="Stored examples in total.", rich_help_panel=PANEL_HOW)
    ] = None,
    memory_per_class: Annotated[
        int | None, typer.Option(help="Stored examples per class.", rich_help_panel=PANEL_HOW)
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="default, paper, as-printed, or a file of rules.", rich_help_panel=PANEL_HOW
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file, such as a run's config.toml.", rich_help_panel=PANEL_HOW),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any field, for example method.selector=greedy or network.width=20.",
            rich_help_panel=PANEL_HOW,
        ),
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            help="Hold out this share of the training data and score on it; "
            "the test set is not opened.",
            rich_help_panel=PANEL_SCORE,
        ),
    ] = None,
    eval_every: Annotated[
        str | None,
        typer.Option(help="end, task, or a number of batches.", rich_help_panel=PANEL_SCORE),
    ] = None,
    eval_images: Annotated[
        int | None,
        typer.Option(help="Score on at most so many images.", rich_help_panel=PANEL_SCORE),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One JSON object on stdout; progress on stderr.",
            rich_help_panel=PANEL_SCORE,
        ),
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where the data set's parquet files or folders lie.", rich_help_panel=PANEL_WHERE
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where run directories go.", rich_help_panel=PANEL_WHERE)
    ] = Path("runs"),
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ...", rich_help_panel=PANEL_WHERE)
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="torch threads.", rich_help_panel=PANEL_WHERE)
    ] = None,
) -> None:
    """Learn a stream online and print task- and class-incremental results.

    A run that was interrupted continues when the same command is given again; a finished one is
    read back.

    **Example:** `deepccg run --dataset cifar10 --data-dir DATA --method deepccg,er --seeds 0-2`
    """
    from deepccg.core import InputError
    from deepccg.experiment import resolve

    given = _settings_from_file(config)
    flags: dict[str, Any] = {
        "dataset": dataset,
        "stream.kind": stream,
        "scenario": scenario,
        "memory": memory,
        "memory_per_class": memory_per_class,
        "preset": preset,
        "evaluation.validation": validation,
        "evaluation.every": _number_or_word(eval_every) if eval_every else None,
        "evaluation.images": eval_images,
        "device": device,
        "threads": threads,
    }
    given |= {key: value for key, value in flags.items() if value is not None}
    given |= dict(_assignment(text) for text in settings or [])
    for one, other in (("memory", "memory_per_class"), ("memory_per_class", "memory")):
        if flags[one] is not None and flags[other] is None:
            given.pop(other, None)
    names: list[str | None] = [name.strip() for name in method.split(",")] if method else [None]
    numbers = _seeds(seeds) if seeds else [given.get("seed", 0)]
    configs = []
    for name in names:
        named = given if name is None else {**given, "method.name": name}
        configs.append([resolve({**named, "seed": seed}) for seed in numbers])
    if data_dir is not None and not data_dir.is_dir():
        raise InputError(f"--data-dir {data_dir} is not a directory")
    rows = [_run_seeds(each, out, data_dir) for each in configs]
    _print(rows, as_json)


def _run_seeds(configs: "list[RunConfig]", out: Path, data_dir: Path | None) -> "list[RunResult]":
    from deepccg.experiment import run as run_one

    results = []
    for config in configs:
        directory = out / config.name() / f"seed-{config.seed}"
        with _progress_bar(f"{config.method.name}, seed {config.seed}") as update:
            results.append(run_one(config, directory, data_dir=data_dir, progress=update))
    return results


@contextlib.contextmanager
def _progress_bar(label: str) -> "Iterator[ProgressUpdate]":
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("batches, loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    quiet = not console.is_terminal  # a bar that cannot move is only an empty line
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        yield ProgressUpdate(bar, label)


class ProgressUpdate:
    """Moves a bar; the bar appears with the first step."""

    def __init__(self, bar: Progress, label: str) -> None:
        self._bar = bar
        self._task = bar.add_task(label, total=None, loss=0.0)
        self._loss = 0.0

    def __call__(self, step: int, total: int, info: "StepInfo") -> None:
        """After each batch; the loss shown is smoothed."""
        self._loss = info.loss if step == 1 else 0.95 * self._loss + 0.05 * info.loss
        self._bar.update(self._task, completed=step, total=total, loss=self._loss)


def _print(results: "list[list[RunResult]]", as_json: bool) -> None:
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
            entry["directories"] = {str(run.config.seed): str(run.directory) for run in runs}
        typer.echo(json.dumps(summary, indent=2, allow_nan=False))
        return
    console = Console()
    console.print(result_table(rows, title=_title(first.config), **scored))
    lines = dict.fromkeys(_reading(runs[0]) for runs in results)
    kept = [f"{_label(runs[0].config)} {_held(runs[0])}" for runs in results]
    where = sorted({str(runs[0].directory.parent) for runs in results})
    text = [*lines, f"Held at the end: {'; '.join(kept)}.", f"Run directories: {', '.join(where)}"]
    console.print("\n".join(text), highlight=False, soft_wrap=True)


def _reading(result: "RunResult") -> str:
    fields = result.config.stream
    if fields.joint is None:
        return f"Single pass: {result.examples_read:,} training examples, each read once."
    return (
        f"Offline: {result.examples_read // fields.epochs:,} training examples, "
        f"each read {fields.epochs} times."
    )


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


def _title(config: "RunConfig") -> str:
    memory = f"{config.memory_per_class} per class" if config.memory is None else f"{config.memory}"
    return f"{config.dataset}, {config.stream.kind}, {config.scenario} scenario, memory {memory}"


def _settings_from_file(path: Path | None) -> dict[str, Any]:
    """The file's settings with dotted keys, so that flags can be laid over them."""
    from deepccg.core import InputError

    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read --config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"--config {path} is not valid TOML: {error}") from None
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            flat[key] = value
    return flat


def _assignment(text: str) -> tuple[str, Any]:
    from deepccg.core import InputError

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"--set {text}: write FIELD=VALUE, for example method.selector=greedy")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _number_or_word(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _seeds(text: str) -> list[int]:
    """The numbers of ``0``, ``0-2`` or ``0,3,5-7``."""
    from deepccg.core import InputError

    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"--seeds {text}: write for example 0, 0-2 or 0,3,5")
        seeds += range(int(first), int(last if dash else first) + 1)
    if not seeds:
        raise InputError(f"--seeds {text} names no seed")
    return list(dict.fromkeys(seeds))
