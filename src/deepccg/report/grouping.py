"""Runs put in order: which of them may be compared, and what each is called."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from deepccg.records import precedence
from deepccg.report.names import DATASETS, METHODS, digest, method_name, slug
from deepccg.report.runs import Run
from deepccg.report.settings import PAPER_EXAMPLES, Row, Setting

# What does not decide a result, or what makes runs the seeds of one row.
_APART = {"seed", "threads", "device", "kernels", "evaluation.shift_images"}


def grouped(runs: Iterable[Run]) -> list[Setting]:
    """All settings, ordered by data set, stream and scenario; rows in the order of the methods.

    Of runs of the same configuration and seed one counts (``precedence``), with the shifts of
    whichever recorded them.
    """
    ordered = sorted(runs, key=lambda run: (_setting_fields(run), _row_place(run), run.seed))
    settings = []
    for fields, together in groupby(ordered, key=_setting_fields):
        rows = [list(alike) for _, alike in groupby(together, key=_row_place)]
        settings.append(_setting(fields, rows))
    return settings


def _setting(fields: "_Fields", rows: Sequence[Sequence[Run]]) -> Setting:
    labels = _labels([row[0] for row in rows])
    made = tuple(
        Row(
            key=_row_key(alike[0]),
            method=str(alike[0].config["method"].get("name")),
            label=label,
            runs=_by_seed(alike),
        )
        for label, alike in zip(labels, rows, strict=True)
    )
    _, dataset, stream, by_class, memory, details = fields
    return Setting(dataset, stream, "class" if by_class else "task", memory, details, made)


def _by_seed(runs: Sequence[Run]) -> dict[int, Run]:
    chosen: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: (run.seed, *precedence(run.path, run.config))):
        first = chosen.get(run.seed)
        if first is None:
            chosen[run.seed] = run
        else:
            shifts, others = first.shifts or run.shifts, (*first.others, run.path)
            chosen[run.seed] = replace(first, shifts=shifts, others=others)
    return chosen


_Fields = tuple[int, str, str, bool, str, tuple[str, ...]]


def _setting_fields(run: Run) -> _Fields:
    """What decides which table a run belongs to; the number is the data set's place."""
    config = run.config
    dataset, by_class = str(config.get("dataset")), config.get("scenario") == "class"
    stream, evaluation = config["stream"], config["evaluation"]
    if (per_class := config.get("memory_per_class")) is not None:
        memory = f"{per_class} per class"
    else:
        memory = "none" if config.get("memory") is None else f"{config['memory']} in total"
    details = []
    if (examples := stream.get("examples_per_class", PAPER_EXAMPLES)) != PAPER_EXAMPLES:
        details.append(f"{examples} examples per class")
    if (classes := stream.get("classes_per_task")) is not None:
        details.append(f"{classes} classes per task")
    if (images := evaluation.get("images")) is not None:
        details.append(f"scored on {images} images")
    if (share := evaluation.get("validation")) is not None:
        details.append(f"scored on {share} of the training data, held out")
    known = list(DATASETS)
    place = known.index(dataset) if dataset in known else len(known)
    return place, dataset, str(stream.get("kind")), by_class, memory, tuple(details)


def _row_place(run: Run) -> tuple[int, str, str, int, str]:
    """Rows in the order in which the methods are known, then by preset; one place for a row.

    Of one preset the row with the fewest changes comes first.
    """
    method = str(run.config["method"].get("name"))
    known = list(METHODS)
    place = known.index(method) if method in known else len(known)
    preset = str(run.config.get("preset", "default"))
    named = "" if preset == "default" else preset
    return place, method, named, len(run.changes), _row_key(run)


def _row_key(run: Run) -> str:
    return slug(f"{run.config['method'].get('name')}-{digest(dict(_flat(run.config)))}")


def _labels(runs: Sequence[Run]) -> list[str]:
    """A name for each row; where names would be equal, with the fields in which rows differ."""
    plain = [_label(run) for run in runs]
    labels = []
    flat = [dict(_flat(run.config)) for run in runs]
    for run, name, own in zip(runs, plain, flat, strict=True):
        same = [fields for other, fields in zip(plain, flat, strict=True) if other == name]
        keys = dict.fromkeys(key for fields in same for key in fields)
        differing = [k for k in keys if len({repr(fields.get(k)) for fields in same}) > 1]
        labels.append(_label(run, {k: own.get(k) for k in differing}))
    return labels


def _label(run: Run, further: Mapping[str, Any] | None = None) -> str:
    """The method, its preset, what differs from that, and ``further`` fields."""
    preset = str(run.config.get("preset", "default"))
    fields = {**run.changes, **(further or {})}
    said = [] if preset == "default" else [preset]
    for key, value in fields.items():
        said.append(f"{key.removeprefix('method.')}={'none' if value is None else value}")
    name = method_name(str(run.config["method"].get("name")))
    return f"{name} ({', '.join(said)})" if said else name


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field that decides a result, by its dotted name."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif f"{prefix}{key}" not in _APART:
            yield f"{prefix}{key}", value
