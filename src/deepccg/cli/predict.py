"""``deepccg predict``: label images with a finished run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deepccg.cli.options import names as listed

if TYPE_CHECKING:
    from deepccg.experiment import TrainedRun


def predict(
    run: Annotated[Path, typer.Argument(help="A run directory, such as runs/NAME/seed-0.")],
    folder: Annotated[Path, typer.Argument(help="Images: a folder, searched through, or a file.")],
    classes: Annotated[
        str | None, typer.Option(help="Only these classes are possible: names with commas.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes to show.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="JSON with all probabilities.")] = False,
    method: Annotated[
        str | None, typer.Option(help="package.module:Class, for a run of a learner of your own.")
    ] = None,
) -> None:
    """Print labels and probabilities for images.

    **Example:** `deepccg predict runs/NAME/seed-0 my_images/`
    """
    from deepccg.core import InputError
    from deepccg.streams import image_files

    trained = _load(run, method)
    files = [folder] if folder.is_file() else image_files(folder)
    if not files:
        raise InputError(f"there are no images in {folder}")
    found = trained.predict_files(files, None if classes is None else listed(classes))
    images = [str(file.relative_to(folder)) if file != folder else file.name for file in files]
    predictions = list(zip(images, found, strict=True))
    if as_json:
        entries = [
            {"image": image, "label": next(iter(likely)), "probabilities": likely}
            for image, likely in predictions
        ]
        typer.echo(json.dumps(entries, indent=2, allow_nan=False))
        return
    table = Table("Image", "Label", "Probabilities", box=box.SIMPLE_HEAD)
    for image, likely in predictions:
        text = ", ".join(f"{name} {p:.2f}" for name, p in list(likely.items())[:top])
        table.add_row(Text(image), Text(next(iter(likely))), Text(text))
    Console().print(table)


def _load(run: Path, method: str | None) -> "TrainedRun":
    """Load the run; ``method`` names a class of the user's own, which a directory cannot do."""
    from deepccg.core import InputError
    from deepccg.experiment import ClassNeeded, learner_class, load_run

    try:
        return load_run(run, learner=learner_class(method) if method else None)
    except ClassNeeded as error:
        raise InputError(
            f"{run} was run with {error.method}: if you trust it, add --method {error.method}"
        ) from None
