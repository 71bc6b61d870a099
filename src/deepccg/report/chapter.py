"""One setting as a chapter of the page: its tables, figures, memories, and how it was made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from deepccg.report.about import About
from deepccg.report.figures import PageFigure, SeriesStyle, page_figures, setting_figures, svg
from deepccg.report.gallery import ClassStrip, Stored, strips
from deepccg.report.names import seeds_text
from deepccg.report.runs import Run
from deepccg.report.settings import Row, Setting
from deepccg.report.sheet import Sheet
from deepccg.report.sheets import cost_sheet, results_sheet
from deepccg.report.shift_table import shift_sheet


@dataclass(frozen=True)
class Map:
    """A row's heat map."""

    row: Row
    drawing: Markup


@dataclass(frozen=True)
class Gallery:
    """A row's memory."""

    row: Row
    strips: Sequence[ClassStrip]
    stored: int


@dataclass(frozen=True)
class Made:
    """How a row was made."""

    row: Row
    seeds: str
    command: str
    audits: Sequence[tuple[str, str]]  # seeds, line
    passed: bool | None
    environment: str
    directories: Sequence[str]


@dataclass(frozen=True)
class Chapter:
    """Everything of one setting."""

    setting: Setting
    results: Sheet
    costs: Sheet | None
    figures: Sequence[PageFigure]
    cost_figures: Sequence[PageFigure]
    shifts: Sheet | None
    shift_figures: Sequence[PageFigure]
    maps: Sequence[Map]
    galleries: Sequence[Gallery]
    without_gallery: Mapping[str, Sequence[str]]  # labels, by the reason
    made: Sequence[Made]


def chapter(
    setting: Setting,
    about: Mapping[str, About],
    styles: Mapping[str, SeriesStyle],
    images_per_class: int,
) -> Chapter:
    """Make all of it.

    Args:
        setting: What is shown.
        about: By the key of a row.
        styles: By the label of a row.
        images_per_class: That a gallery shows; 0 for no galleries.
    """
    rows = setting.rows
    figures = setting_figures(setting, about, styles)

    def drawn(*names: str) -> list[PageFigure]:
        return [each for name in names if name in figures for each in page_figures(figures[name])]

    by_label = {row.label: row for row in rows}
    maps = figures["tasks"].panels if "tasks" in figures else ()
    return Chapter(
        setting=setting,
        results=results_sheet(setting),
        costs=cost_sheet(setting),
        figures=drawn("accuracy", "stream", "final", "forgetting"),
        cost_figures=drawn(*(name for name in figures if name.startswith("cost-"))),
        shifts=shift_sheet(rows),
        shift_figures=drawn("shift", "misalignment"),
        maps=[Map(by_label[panel.title], svg(panel)) for panel in maps],
        galleries=_galleries(rows, about, images_per_class),
        without_gallery=_without_gallery(rows, about) if images_per_class else {},
        made=[_made(row, about[row.key]) for row in rows],
    )


def _galleries(rows: Sequence[Row], about: Mapping[str, About], per_class: int) -> list[Gallery]:
    return [
        Gallery(row, strips(stored, per_class), len(stored.labels))
        for row in rows
        if per_class and isinstance(stored := about[row.key].stored, Stored)
    ]


def _without_gallery(rows: Sequence[Row], about: Mapping[str, About]) -> dict[str, list[str]]:
    """Which rows have no gallery, by the reason."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if isinstance(reason := about[row.key].stored, str):
            found.setdefault(reason, []).append(row.label)
    return found


def _made(row: Row, about: About) -> Made:
    by_line = sorted((line, seed) for seed, line in about.protocols.items())
    audits = [
        (seeds_text(seed for _, seed in together), line)
        for line, together in groupby(by_line, key=lambda pair: pair[0])
    ]
    known = [run.audit.get("passed") for run in row.runs.values() if run.audit is not None]
    machines = dict.fromkeys(_machine(run.environment) for run in row.runs.values())
    return Made(
        row=row,
        seeds=seeds_text(row.runs),
        command=about.command,
        audits=audits,
        passed=all(value is True for value in known) if known else None,
        environment="; ".join(filter(None, machines)),
        directories=[place for run in row.runs.values() for place in _places(run)],
    )


def _places(run: Run) -> list[str]:
    """Where it lies, and what was left aside for it."""
    return [str(run.path), *(f"{other} (the same run again: not counted)" for other in run.others)]


def _machine(environment: Mapping[str, object] | None) -> str:
    """Versions, commit and processor in one line."""
    if environment is None:
        return ""
    packages = environment.get("packages")
    found = packages if isinstance(packages, Mapping) else {}
    parts = [f"{name} {found[name]}" for name in ("deepccg", "torch") if name in found]
    if environment.get("commit"):
        parts.append(f"commit {environment['commit']}")
    parts += [str(environment[key]) for key in ("processor", "device") if environment.get(key)]
    return ", ".join(parts)
