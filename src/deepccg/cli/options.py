"""Options that several commands share, and checks of their values."""

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

OF_PRESET = "the preset's"
FIELD = "FIELD=VALUE"
SEEDS_HELP = "For example 0, 0-2 or 0,3,5."
STREAM_KINDS = "disjoint, shifting-window, blurry, gaussian or domain (docs/streams.md)."
STREAM_HELP = (
    "disjoint, shifting-window, blurry, gaussian, domain (docs/streams.md), or joint (offline)."
)
CHECKPOINT = {
    "help": "How often to save: steps, such as 100, or seconds, such as 30s.",
    "show_default": "60s",
}
TRACK_HELP = "Also send the records to mlflow, tensorboard or wandb."


def panel(title: str) -> Callable[..., Any]:
    """Return a maker of options that stand together under a heading of the help."""
    return partial(typer.Option, rich_help_panel=title)


what, how, where = panel("What"), panel("How"), panel("Where")

JobsOption: TypeAlias = Annotated[
    int | None,
    how("--jobs", "-j", help="Runs at a time.", show_default="one for each processor"),
]
RetriesOption: TypeAlias = Annotated[int, how(help="How often what fails is tried again.")]
EngineOption: TypeAlias = Annotated[str, how(help="local, or ray (docs/cluster.md).")]
AddressOption: TypeAlias = Annotated[
    str | None, how(help="Of the Ray cluster.", show_default="one that runs here")
]
DataDirOption: TypeAlias = Annotated[
    Path | None,
    where(
        help="Where the data set's parquet files or folders lie.",
        show_default="from the Hugging Face hub",
    ),
]
SKIP_HELP = "Leave out images that cannot be read and class folders without images, and list them."
SkipOption: TypeAlias = Annotated[bool, where("--skip-unreadable", help=SKIP_HELP)]
OutOption: TypeAlias = Annotated[Path, where(help="Where run directories go.")]
TrackOption: TypeAlias = Annotated[str | None, where(help=TRACK_HELP)]
OpenOption: TypeAlias = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
RunsArgument: TypeAlias = Annotated[
    list[Path], typer.Argument(help="Run directories, ones with runs below, or archives.")
]


def names(text: str | None) -> list[str]:
    """Split a list of names at its commas."""
    return [name.strip() for name in text.split(",")] if text else []


def command_line(*words: str, options: Mapping[str, object]) -> str:
    """Return what to type: an option without a value is left out, one with a list repeated."""
    given = list(words)
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        given += [word for each in values if each is not None for word in (f"--{name}", str(each))]
    return shlex.join(given)


def check_data_dir(data_dir: Path | None) -> None:
    """Refuse a directory that does not exist, before any run begins."""
    from deepccg.core import InputError

    if data_dir is not None and not data_dir.is_dir():
        raise InputError(f"--data-dir {data_dir} is not a directory")


def check_out(out: Path) -> None:
    """Refuse a directory as the name of a file, before any work is done for it."""
    from deepccg.core import InputError

    if out.is_dir():
        raise InputError(f"{out} is a directory: give --out the name of a file")
