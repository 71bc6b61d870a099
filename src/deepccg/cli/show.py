"""Commands that show what there is: methods, data sets, streams, the version."""

import inspect
import platform
import re
from collections import Counter
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from deepccg.cli.options import STREAM_KINDS

if TYPE_CHECKING:
    from deepccg.core import Config
    from deepccg.report.figures import Figure
    from deepccg.streams import Dataset, Stream


def methods(
    name: Annotated[str | None, typer.Argument(help="A method, to see its fields.")] = None,
) -> None:
    """List the methods, or one method's paper and fields, those that people set first on top.

    **Example:** `deepccg methods deepccg`
    """
    from deepccg.experiment import learner_class
    from deepccg.learners.recipe import RecipeConfig
    from deepccg.methods import METHODS

    console = Console()
    if name is None:
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("Method", no_wrap=True)
        table.add_column("What it does")
        for each, cls in METHODS.items():
            table.add_row(each, Text((inspect.getdoc(cls) or "").splitlines()[0]))
        console.print(table)
        console.print("`deepccg methods NAME` shows a method's fields.", markup=False)
        return
    cls = learner_class(name)
    description, *_ = re.split(
        r"^(?:Args|Attributes|Example):$", inspect.getdoc(cls) or "", flags=re.MULTILINE
    )
    console.print(Markdown(description))
    recipe = RecipeConfig().chosen() if issubclass(cls.Config, RecipeConfig) else {}
    fields = [field for field in cls.Config.model_fields if field not in recipe]
    first = [field for field in cls.Config.first_fields if field in fields] or fields
    console.print(_fields_table(cls.Config, first))
    if further := [field for field in fields if field not in first]:
        console.print("Further readings of the paper, rarely set:", markup=False)
        console.print(_fields_table(cls.Config, further))
    if recipe:
        console.print("Options of every method with replay (docs/recipes.md):", markup=False)
        console.print(_fields_table(cls.Config, list(recipe)))
    console.print("Set one with --set method.FIELD=VALUE.", markup=False)


def _fields_table(config: "type[Config]", names: list[str]) -> Table:
    table = Table("Field", "Default", "Meaning", box=box.SIMPLE_HEAD)
    for name in names:
        field = config.model_fields[name]
        table.add_row(name, Text(str(field.default)), Text(field.description or ""))
    return table


def data(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where the data sets lie, as in `deepccg run`: what is cached of these files.",
            show_default="what is cached of the Hugging Face hub",
        ),
    ] = None,
) -> None:
    """List the data sets, where they come from, and which are cached: decoded, ready to be read.

    **Example:** `deepccg data`
    """
    from deepccg.cli.options import check_data_dir
    from deepccg.streams import available, default_cache_dir

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("Name", "Classes", "Image", "Train / test", "Cached"):
        table.add_column(title, overflow="fold", no_wrap=title == "Name")
    check_data_dir(data_dir)
    found = available(data_dir=data_dir)
    for info in found:
        table.add_row(
            info.name,
            str(info.classes),
            "x".join(str(size) for size in info.image_shape),
            f"{info.train:,} / {info.test:,}",
            "-" if info.name == "digits" else "yes" if info.cached_at else "no",  # it is installed
        )
    console = Console()
    console.print(table)
    for info in found:
        told = f"{info.name}: from {info.source}; {info.note}"
        console.print(told, markup=False, highlight=False)
    console.print(f"Cache: {default_cache_dir()}", markup=False, highlight=False, soft_wrap=True)
    if data_dir is None:
        console.print(
            "Cached: of the hub. `deepccg data --data-dir DATA` shows what is of files in DATA.",
            markup=False,
        )
    console.print(
        "Further: hf:owner/name for an image-classification data set of the Hugging Face hub,\n"
        "or the path of a folder with one folder of images per class.",
        markup=False,
    )


def stream(
    dataset: Annotated[str, typer.Option(help="As in `deepccg run`.")] = "digits",
    stream: Annotated[str, typer.Option(help=STREAM_KINDS)] = "disjoint",
    classes_per_task: Annotated[
        int | None, typer.Option(help="Classes per task, or the window's length.")
    ] = None,
    examples_per_class: Annotated[int, typer.Option(help="At most so many of each class.")] = 500,
    batch_size: Annotated[int, typer.Option(help="Examples per batch.")] = 10,
    imbalance: Annotated[
        float | None, typer.Option(help="Most frequent class over the rarest, in examples.")
    ] = None,
    blur: Annotated[
        float | None, typer.Option(help="blurry: share of each class in other tasks.")
    ] = None,
    spread: Annotated[
        float | None, typer.Option(help="gaussian: of a class, in distances between peaks.")
    ] = None,
    domains: Annotated[int | None, typer.Option(help="domain: how many.")] = None,
    appearance: Annotated[str | None, typer.Option(help="domain: rotation, permutation.")] = None,
    seed: Annotated[int, typer.Option(help="Class order and examples.")] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data lies.")] = None,
    png: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("stream.png"),
) -> None:
    """Print and draw which classes arrive when.

    **Example:** `deepccg stream --dataset digits --stream shifting-window --png window.png`
    """
    from deepccg.core import InputError
    from deepccg.records import RecordError
    from deepccg.report.figures import save
    from deepccg.streams import build_stream, load_dataset

    loaded = load_dataset(dataset, data_dir=data_dir)
    built = build_stream(
        stream,
        loaded.train,
        classes_per_task=classes_per_task,
        examples_per_class=examples_per_class,
        batch_size=batch_size,
        seed=seed,
        imbalance=imbalance,
        blur=blur,
        spread=spread,
        domains=domains,
        appearance=appearance,
    )
    title = f"{loaded.name}, {stream}, seed {seed}"
    table = _stream_table(built, loaded, title)
    try:
        save(_stream_figure(built, loaded, bounded=stream != "gaussian"), png, title=title)
    except OSError as error:
        raise InputError(f"cannot write {png}: {error.strerror}") from None
    except RecordError:  # nothing to draw with
        Console().print(table)
        raise
    Console().print(table)
    Console().print(f"Drawn in {png}", highlight=False)


def _stream_table(built: "Stream", loaded: "Dataset", title: str) -> Table:
    from deepccg.report import StreamTask, stream_table

    sizes: Counter[int] = Counter()
    for step in range(len(built)):
        sizes[built.task_of(step).id] += len(built.indices(step))
    looks = [domain.name for domain in built.domains] or [""] * len(built.tasks)
    tasks = [
        StreamTask(tuple(loaded.class_names[c] for c in task.classes), sizes[task.id], look)
        for task, look in zip(built.tasks, looks, strict=True)
    ]
    note = "; learned without tasks, which are what is scored" if built.task_free else ""
    return stream_table(tasks, title=title, note=note).terminal()


def _stream_figure(built: "Stream", loaded: "Dataset", *, bounded: bool) -> "Figure":
    """Describe the stream; ``bounded``: task by task, else in equal parts."""
    import numpy as np

    from deepccg.report.figures import stream_from_counts

    batches = [loaded.train.y[built.indices(step)] for step in range(len(built))]
    presence = np.array([[(y == c).sum() for y in batches] for c in built.classes])
    ids = [built.task_of(step).id for step in range(len(built))]
    seen = np.cumsum([len(y) for y in batches]).tolist()
    starts = [seen[i] for i in range(len(ids) - 1) if ids[i] != ids[i + 1]] if bounded else []
    return stream_from_counts(presence, [loaded.class_names[c] for c in built.classes], starts)


def version() -> None:
    """Print the versions of deepccg, Python and torch.

    **Example:** `deepccg version`
    """
    typer.echo(
        f"deepccg {package_version('deepccg')} "
        f"(Python {platform.python_version()}, torch {package_version('torch')})"
    )
