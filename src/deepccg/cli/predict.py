"""``deepccg predict``: label images with a finished run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deepccg.cli.options import CLASS_HELP
from deepccg.cli.options import names as listed

if TYPE_CHECKING:
    from deepccg.experiment import TrainedRun

CHUNK = 500  # images classified at once


def predict(
    run: Annotated[Path, typer.Argument(help="A run directory, such as runs/NAME/seed-0.")],
    folder: Annotated[Path, typer.Argument(help="Images: a folder, searched through, or a file.")],
    classes: Annotated[
        str | None, typer.Option(help="Only these classes are possible: names with commas.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes to show.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="JSON with all probabilities.")] = False,
    method: Annotated[str | None, typer.Option(help=CLASS_HELP)] = None,
) -> None:
    """Print labels and probabilities for images.

    **Example:** `deepccg predict runs/NAME/seed-0 my_images/`
    """
    import torch

    from deepccg.core import InputError, Task
    from deepccg.streams import image_files, read_images

    trained = _load(run, method)
    if len(trained.shape) != 3:
        raise InputError(f"{run} was trained on vectors: it cannot label image files")
    files = [folder] if folder.is_file() else image_files(folder)
    if not files:
        raise InputError(f"there are no images in {folder}")
    names = trained.class_names
    task = None
    if classes is not None:
        wanted = listed(classes)
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise InputError(f"unknown class {unknown[0]!r}; known: {', '.join(names)}")
        task = Task(id=-1, classes=tuple(names.index(name) for name in wanted))
    columns = [names[c] for c in trained.learner.columns(task)]
    predictions: list[dict[str, Any]] = []
    channels, height, width = trained.shape
    for start in range(0, len(files), CHUNK):
        part = files[start : start + CHUNK]
        images = torch.from_numpy(read_images(part, (channels, height, width)))
        for file, row in zip(part, trained.learner.predict_proba(images, task), strict=True):
            ranked = sorted(zip(columns, row.tolist(), strict=True), key=lambda pair: -pair[1])
            shown = str(file.relative_to(folder)) if file != folder else file.name
            likely = {name: p for name, p in ranked if p > 0}
            predictions.append({"image": shown, "label": ranked[0][0], "probabilities": likely})
    if as_json:
        typer.echo(json.dumps(predictions, indent=2, allow_nan=False))
        return
    table = Table("Image", "Label", "Probabilities", box=box.SIMPLE_HEAD)
    for each in predictions:
        best = list(each["probabilities"].items())[:top]
        text = ", ".join(f"{name} {p:.2f}" for name, p in best)
        table.add_row(Text(each["image"]), Text(each["label"]), Text(text))
    Console().print(table)


def _load(run: Path, method: str | None) -> "TrainedRun":
    """The run; ``method`` is for a class of the user's own, which a directory cannot name."""
    from deepccg.core import InputError
    from deepccg.experiment import ClassNeeded, learner_class, load_run

    try:
        return load_run(run, learner=learner_class(method) if method else None)
    except ClassNeeded as error:
        raise InputError(
            f"{run} was run with {error.method}: if you trust it, add --method {error.method}"
        ) from None
