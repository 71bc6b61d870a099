"""The report: one HTML file with everything in it."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup

from deepccg.report.about import About
from deepccg.report.chapter import chapter
from deepccg.report.figures import (
    DARK,
    LIGHT,
    SeriesStyle,
    colour_scale,
    series_styles,
    svg,
    swatch,
)
from deepccg.report.gallery import Stored, fair_share
from deepccg.report.names import dataset_name, method_name, stream_name
from deepccg.report.settings import Setting
from deepccg.report.sheets import overview_sheet

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_PIXELS = 2_500_000  # of all memories on the page: about two megabytes


@dataclass(frozen=True)
class Choice:
    """A value that a reader can filter by; methods have a colour."""

    value: str
    name: str
    slot: int | None = None


def report_page(
    settings: Sequence[Setting],
    about: Mapping[str, About],
    *,
    title: str = "deepccg report",
    left_out: Sequence[str] = (),
    images_per_class: int = 10,
) -> str:
    """The page, complete: no other file is needed, nothing is fetched.

    Args:
        settings: What ``grouped`` made of the runs; at least one.
        about: By the key of a row: what its directories do not say.
        title: The heading.
        left_out: Directories that are not shown, each with the reason.
        images_per_class: That a memory's gallery shows at most; 0 for no galleries.
    """
    rows = [row for setting in settings for row in setting.rows]
    styles = series_styles((row.label, row.method) for row in rows)
    memories = [about[row.key].stored for row in rows]
    shown = fair_share(
        [stored for stored in memories if isinstance(stored, Stored)],
        images_per_class,
        _MOST_PIXELS,
    )
    per_class = min(shown, images_per_class)
    return render(
        "report",
        title=title,
        chapters=[chapter(setting, about, styles, per_class) for setting in settings],
        overview=overview_sheet(settings) if len(settings) > 1 else None,
        settings=settings,
        facets=_facets(settings, styles),
        looks=styles,
        swatches={label: swatch(style) for label, style in styles.items()},
        runs=sum(len(row.runs) for row in rows),
        left_out=left_out,
        heat_scale=svg(colour_scale()),
    )


def render(name: str, **values: object) -> str:
    """A page from its template, style sheet and script, all of this package."""
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
    settings: Sequence[Setting], styles: Mapping[str, SeriesStyle]
) -> dict[str, list[Choice]]:
    """What there is to choose from; a facet with one value is no choice."""
    methods = {row.method: row.label for setting in settings for row in reversed(setting.rows)}
    found = {
        "method": [
            Choice(m, method_name(m), styles[methods[m]].slot)
            for m in dict.fromkeys(row.method for s in settings for row in s.rows)
        ],
        "dataset": [Choice(d, dataset_name(d)) for d in dict.fromkeys(s.dataset for s in settings)],
        "stream": [Choice(s, stream_name(s)) for s in dict.fromkeys(s.stream for s in settings)],
        "scenario": [
            Choice(s, f"{s}-incremental") for s in dict.fromkeys(s.scenario for s in settings)
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
