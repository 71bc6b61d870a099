"""The report: one HTML file with everything in it."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup

from deepccg.report.comparisons import Comparison, Row
from deepccg.report.details import RowDetails, provenance
from deepccg.report.figures import (
    DARK,
    LIGHT,
    PageFigure,
    SeriesStyle,
    colour_scale,
    comparison_figures,
    page_figures,
    series_styles,
    svg,
    swatch,
)
from deepccg.report.gallery import Stored, fair_share, strips
from deepccg.report.names import dataset_name, method_name, stream_name
from deepccg.report.tables import cost_table, overview_table, results_table, shift_table

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_PIXELS = 2_500_000  # of all memories on the page: about two megabytes


def report_page(
    comparisons: Sequence[Comparison],
    details: Mapping[str, RowDetails],
    *,
    title: str = "deepccg report",
    left_out: Sequence[str] = (),
    images_per_class: int = 10,
) -> str:
    """Return the page, complete: no other file is needed, nothing is fetched.

    Args:
        comparisons: From ``group_runs``; at least one.
        details: Of each row, by its key.
        title: The heading.
        left_out: Directories that are not shown, each with the reason.
        images_per_class: How many images of a class a gallery shows at most; 0 for no galleries.
    """
    rows = [row for comparison in comparisons for row in comparison.rows]
    styles = series_styles((row.label, row.method) for row in rows)
    memories = [details[row.key].stored for row in rows]
    shown = fair_share(
        [stored for stored in memories if isinstance(stored, Stored)],
        images_per_class,
        _MOST_PIXELS,
    )
    per_class = min(shown, images_per_class)
    return render(
        "report",
        title=title,
        sections=[section(each, details, styles, per_class) for each in comparisons],
        overview=overview_table(comparisons) if len(comparisons) > 1 else None,
        facets=_facets(comparisons, styles),
        slots={label: style.slot for label, style in styles.items()},
        swatches={label: swatch(style) for label, style in styles.items()},
        runs=sum(len(row.runs) for row in rows),
        left_out=left_out,
        heat_scale=svg(colour_scale()),
    )


def section(
    comparison: Comparison,
    details: Mapping[str, RowDetails],
    styles: Mapping[str, SeriesStyle],
    images_per_class: int,
) -> dict[str, object]:
    """Return what the page shows of one comparison, by the names of the template.

    Args:
        comparison: What is shown.
        details: Of each row, by its key.
        styles: Of each row, by its label.
        images_per_class: How many a gallery shows; 0 for no galleries.
    """
    rows = comparison.rows
    figures = comparison_figures(comparison, details, styles)

    def drawn(*names: str) -> list[PageFigure]:
        return [each for name in names if name in figures for each in page_figures(figures[name])]

    by_label = {row.label: row for row in rows}
    heat_maps = figures["tasks"].panels if "tasks" in figures else ()
    return {
        "comparison": comparison,
        "results": results_table(comparison),
        "costs": cost_table(comparison),
        "figures": drawn("accuracy", "stream", "final", "forgetting"),
        "cost_figures": drawn(*(name for name in figures if name.startswith("cost-"))),
        "shifts": shift_table(rows),
        "shift_figures": drawn("shift", "misalignment"),
        "heat_maps": [(by_label[panel.title], svg(panel)) for panel in heat_maps],
        "galleries": [
            (row, strips(stored, images_per_class))
            for row in rows
            if images_per_class and isinstance(stored := details[row.key].stored, Stored)
        ],
        "without_gallery": _without_gallery(rows, details) if images_per_class else {},
        "provenance": [provenance(row, details[row.key]) for row in rows],
    }


def _without_gallery(
    rows: Sequence[Row], details: Mapping[str, RowDetails]
) -> dict[str, list[str]]:
    """Return the labels of rows without a gallery, by the reason."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if isinstance(reason := details[row.key].stored, str):
            found.setdefault(reason, []).append(row.label)
    return found


def render(name: str, **values: object) -> str:
    """Return a page from its template, style sheet and script, all of this package."""
    style = _read("common.css") + _read(f"{name}.css")
    script = _read("common.js") + _read(f"{name}.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template(f"{name}.html")
        .render(
            values,
            style=Markup(style),  # noqa: S704  (a file of this package)
            script=Markup(script),  # noqa: S704  (a file of this package)
            script_hash=f"sha256-{digest}",
            light=LIGHT,
            dark=DARK,
        )
    )


def _facets(
    comparisons: Sequence[Comparison], styles: Mapping[str, SeriesStyle]
) -> dict[str, list[tuple[str, str, int | None]]]:
    """Return what a reader can filter by, as value, name and colour, if there is a choice."""
    rows = [row for comparison in comparisons for row in comparison.rows]
    slots = {row.method: styles[row.label].slot for row in reversed(rows)}  # of the first row
    found: dict[str, list[tuple[str, str, int | None]]] = {
        "method": [(m, method_name(m), slots[m]) for m in dict.fromkeys(r.method for r in rows)],
        "dataset": [
            (d, dataset_name(d), None) for d in dict.fromkeys(c.dataset for c in comparisons)
        ],
        "stream": [(s, stream_name(s), None) for s in dict.fromkeys(c.stream for c in comparisons)],
        "scenario": [
            (s, f"{s}-incremental", None) for s in dict.fromkeys(c.scenario for c in comparisons)
        ],
    }
    return {name: choices for name, choices in found.items() if len(choices) > 1}


def _environment() -> "Environment":
    from jinja2 import DictLoader, Environment, StrictUndefined

    names = ("report.html", "demo.html", "parts.html")
    there = {name: _read(name) for name in names}
    return Environment(
        loader=DictLoader(there),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _read(name: str) -> str:
    path = files("deepccg.report").joinpath("page_files", name)
    return path.read_text(encoding="utf-8")
