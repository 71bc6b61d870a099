"""``deepccg predict``: label images with a finished run."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deepccg.cli.options import SKIP_HELP, check_out
from deepccg.cli.options import names as listed

if TYPE_CHECKING:
    from deepccg.experiment import TrainedRun

MOST_CLASSES = 12  # of a confusion matrix on the console

Predictions = Sequence[Mapping[str, Any]]  # image, label, probabilities, and true_label if known


def predict(
    run: Annotated[
        Path, typer.Argument(help="A run directory: runs/NAME/seed-0, or runs/NAME if it has one.")
    ],
    folder: Annotated[
        Path,
        typer.Argument(
            help="Images: a folder, searched through, or a file. Images in folders named after "
            "classes are scored."
        ),
    ],
    classes: Annotated[
        str | None,
        typer.Option(
            help="Only these classes are possible: names with commas.", show_default="all"
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes to show.")] = 3,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write a CSV file of labels and, if images are scored, the confusion matrix "
            "beside it, as NAME-confusion.csv."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON with all probabilities.")] = False,
    skip_unreadable: Annotated[bool, typer.Option("--skip-unreadable", help=SKIP_HELP)] = False,
    method: Annotated[
        str | None, typer.Option(help="package.module:Class, for a run of a learner of your own.")
    ] = None,
) -> None:
    """Print labels and probabilities for images, and how many are right where that is known.

    **Example:** `deepccg predict runs/NAME my_images/ --out labels.csv`
    """
    if out is not None:
        check_out(out)
    trained = _load(run, method)
    images = _images(folder, skip_unreadable)
    found = trained.predict_files(list(images.values()), listed(classes) or None)
    predictions = [
        {"image": image, "label": next(iter(likely)), "probabilities": likely}
        | _true_label(image, trained.class_names)
        for image, likely in zip(images, found, strict=True)
    ]
    if as_json:
        typer.echo(json.dumps(predictions, indent=2, allow_nan=False))
    else:
        Console().print(_table(predictions, top))
    scored = [each for each in predictions if "true_label" in each]
    confusion = _confusion(scored, trained.class_names)
    if scored and not as_json and len(confusion) <= MOST_CLASSES:
        Console().print(_confusion_table(confusion))
    if out is not None:
        _write(out, predictions, confusion)
    if scored:
        right = sum(each["label"] == each["true_label"] for each in scored)
        others = len(predictions) - len(scored)
        unknown = f"; in no folder named after a class: {others}" if others else ""
        accuracy = f"Accuracy: {100 * right / len(scored):.1f} % ({right} of {len(scored)} images)"
        typer.echo(accuracy + unknown, err=as_json)


def _load(run: Path, method: str | None) -> "TrainedRun":
    """Load the run; ``method`` names a class of the user's own, which a directory cannot do."""
    from deepccg.core import InputError
    from deepccg.experiment import ClassNeeded, learner_class, load_run
    from deepccg.records import RunDirectory, find_run_directories

    if run.is_dir() and not RunDirectory(run).config_path.exists():
        below = find_run_directories(run)
        if len(below) > 1:
            these = ", ".join(str(each.path) for each in below)
            raise InputError(f"{run} has {len(below)} runs: give one of {these}")
        run = below[0].path if below else run
    try:
        return load_run(run, learner=learner_class(method) if method else None)
    except ClassNeeded as error:
        raise InputError(
            f"{run} was run with {error.method}: if you trust it, add --method {error.method}"
        ) from None


def _images(folder: Path, skip_unreadable: bool) -> dict[str, Path]:
    """Return the image files of a folder, or the file itself, by the names that are shown."""
    from deepccg.core import InputError
    from deepccg.streams import image_files, readable_files

    files = [folder] if folder.is_file() else image_files(folder)
    if skip_unreadable:
        files, skipped = readable_files(files)
        for file in skipped:
            typer.echo(f"skipped, as unreadable: {file}", err=True)
        if skipped:
            typer.echo(f"skipped in all: {len(skipped)}", err=True)
    if not files:
        raise InputError(f"there are no images in {folder}")
    return {str(file.relative_to(folder)) if file != folder else file.name: file for file in files}


def _true_label(image: str, class_names: Sequence[str]) -> dict[str, str]:
    """Return the class that the image's folder is named after, if it is one."""
    first, *below = Path(image).parts
    return {"true_label": first} if below and first in class_names else {}


def _table(predictions: Predictions, top: int) -> Table:
    table = Table("Image", "Label", "Probabilities", box=box.SIMPLE_HEAD)
    for each in predictions:
        likely = list(each["probabilities"].items())[:top]
        text = ", ".join(f"{name} {p:.2f}" for name, p in likely)
        table.add_row(Text(each["image"]), Text(each["label"]), Text(text))
    return table


def _confusion(scored: Predictions, class_names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return how often each true class got each label, for the classes that are either."""
    met = {each[key] for each in scored for key in ("label", "true_label")}
    names = [name for name in class_names if name in met]
    counts = {true: dict.fromkeys(names, 0) for true in names}
    for each in scored:
        counts[each["true_label"]][each["label"]] += 1
    return counts


def _confusion_table(confusion: Mapping[str, Mapping[str, int]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Rows: class of the folder; columns: label")
    table.add_column("")
    for name in confusion:
        table.add_column(Text(name), justify="right")
    for name, row in confusion.items():
        table.add_row(Text(name), *(str(count) if count else "·" for count in row.values()))
    return table


def _write(out: Path, predictions: Predictions, confusion: Mapping[str, Mapping[str, int]]) -> None:
    """Write labels as CSV, and the confusion matrix, if there is one, beside them."""
    from deepccg.records import write_atomically

    rows = [
        [each["image"], each["label"], max(each["probabilities"].values()), each.get("true_label")]
        for each in predictions
    ]
    texts = {out: _csv([["image", "label", "probability", "true_label"], *rows])}
    if confusion:
        matrix = [[name, *row.values()] for name, row in confusion.items()]
        beside = out.with_name(f"{out.stem}-confusion.csv")
        texts[beside] = _csv([["true \\ predicted", *confusion], *matrix])
    for path, text in texts.items():
        write_atomically(path, text.encode(errors="backslashreplace"))
    typer.echo(f"Written: {', '.join(map(str, texts))}", err=True)


def _csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
