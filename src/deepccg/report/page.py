"""The report: one HTML file with everything in it."""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import groupby

from markupsafe import Markup

from deepccg.report.catalogue import RowDetails, comparison_figures, comparison_tables
from deepccg.report.comparisons import Comparison, Row, run_label
from deepccg.report.figures import (
    DARK,
    LIGHT,
    Figure,
    SeriesStyle,
    Stored,
    accuracy_curves,
    colour_scale,
    loss_curves,
    series_styles,
    svg,
    swatch,
)
from deepccg.report.figures.memory_images import fair_share, strips
from deepccg.report.formatting import DATASETS, method_name, seeds_text
from deepccg.report.row_tables import unfinished_table
from deepccg.report.runs import Run
from deepccg.report.tables import overview_table

_FEW = 4  # settings up to which none is folded
_MOST_PIXELS = 2_500_000  # of all memories on the page: about two megabytes


def report_page(
    comparisons: Sequence[Comparison],
    details: Mapping[str, RowDetails],
    title: str = "deepccg report",
    left_out: Sequence[str] = (),
    *,
    unfinished: Sequence[Run] = (),
    images_per_class: int = 10,
    live: bool = False,
) -> str:
    """Return the page, complete: no other file is needed, nothing is fetched.

    Args:
        comparisons: From ``group_runs``.
        details: Of each row, by its key.
        title: The heading.
        left_out: Directories that are not shown, each with the reason.
        unfinished: Runs that have not reached their end.
        images_per_class: How many images of a class a gallery shows at most; 0 for no galleries.
        live: Whether the page asks where it came from for newer versions of itself.
    """
    rows = [row for comparison in comparisons for row in comparison.rows]
    going = _unfinished_labels(unfinished)
    named = [(label, str(run.config["method"].get("name"))) for label, run in going.items()]
    styles = series_styles([*((row.label, row.method) for row in rows), *named])
    memories = [own for row in rows if isinstance(own := details[row.key].stored, Stored)]
    per_class = min(fair_share(memories, images_per_class, _MOST_PIXELS), images_per_class)
    return render(
        "report",
        scripts=("live", "report", "tools") if live else ("report", "tools"),
        live=live,
        title=title,
        groups=[
            {
                "name": name,
                "key": key,
                "overview": overview_table(alike) if len(alike) > 1 else None,
                "sections": [_section(each, details, styles, per_class) for each in alike],
            }
            for key, name, alike in _groups(comparisons)
        ],
        settings=len(comparisons),
        folded=len(comparisons) > _FEW,
        unfinished=unfinished_table(going) if going else None,
        running=sum(run.running for run in unfinished),
        unfinished_figures=_unfinished_figures(going, styles),
        facets=_facets(comparisons, styles),
        slots={label: style.slot for label, style in styles.items()},
        swatches={label: swatch(style) for label, style in styles.items()},
        runs=sum(len(row.runs) for row in rows),
        left_out=left_out,
        heat_scale=colour_scale(),
        svg=svg,
    )


def _groups(comparisons: Sequence[Comparison]) -> list[tuple[str, str, list[Comparison]]]:
    """Return key, name and settings of test results and, apart, of scores on held-out data."""
    tests = [each for each in comparisons if not each.held_out]
    held_out = [each for each in comparisons if each.held_out]
    found = [
        ("tests", "Test results", tests),
        ("held-out", "Held-out training data: for choosing settings, not test results", held_out),
    ]
    return [group for group in found if group[2]]


def _unfinished_labels(runs: Sequence[Run]) -> dict[str, Run]:
    """Return the runs by what readers call them; by their directories, too, where that is alike."""
    found: dict[str, Run] = {}
    for run in runs:
        dataset = str(run.config.get("dataset"))
        label = f"{run_label(run)}, {DATASETS.get(dataset, dataset)}, seed {run.seed}"
        found[f"{label}, {run.path}" if label in found else label] = run
    return found


def _unfinished_figures(
    runs: Mapping[str, Run], styles: Mapping[str, SeriesStyle]
) -> dict[str, Figure]:
    scored = {label: [run.evaluations] for label, run in runs.items() if len(run.evaluations) > 1}
    loss = loss_curves({label: [run.training] for label, run in runs.items()}, styles)
    found = {"accuracy": accuracy_curves(scored, styles) if scored else None, "loss": loss}
    return {name: figure for name, figure in found.items() if figure is not None}


def render(name: str, *, scripts: Sequence[str], **values: object) -> str:
    """Return a page from its template, style sheet and scripts, all of this package."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = _read("common.css") + _read(f"{name}.css")
    script = "".join(_read(f"{each}.js") for each in ("common", *scripts))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(f"{name}.html").render(
        values,
        style=Markup(style),  # noqa: S704  (a file of this package)
        script=Markup(script),  # noqa: S704  (a file of this package)
        script_hash=f"sha256-{digest}",
        light=LIGHT,
        dark=DARK,
    )


def _section(
    comparison: Comparison,
    details: Mapping[str, RowDetails],
    styles: Mapping[str, SeriesStyle],
    images_per_class: int,
) -> dict[str, object]:
    """Return what the page shows of one comparison, by the names of the template."""
    rows = comparison.rows
    figures = comparison_figures(comparison, details, styles)
    methods = {row.label: row.method for row in rows}
    maps = {
        name: [(methods[panel.title], panel) for panel in figures[name].panels]
        for name in ("tasks", "tasks-other", "confusion")
        if name in figures
    }
    galleries, without_gallery = [], defaultdict[str, list[str]](list)
    for row in rows if images_per_class else ():
        if isinstance(stored := details[row.key].stored, Stored):
            galleries.append((row, strips(stored, images_per_class)))
        else:
            without_gallery[stored].append(row.label)  # the reason
    return {
        "comparison": comparison,
        "tables": comparison_tables(comparison, details),
        "figures": figures,
        "cost_figures": [name for name in figures if name.startswith("cost-")],
        "maps": maps,
        "galleries": galleries,
        "without_gallery": without_gallery,
        "provenance": [_provenance(row, details[row.key]) for row in rows],
    }


def _provenance(row: Row, details: RowDetails) -> dict[str, object]:
    """Return how a row was made; seeds whose audits read the same share a line."""
    by_line = sorted((line, seed) for seed, line in details.protocols.items())
    audits = [
        (seeds_text(seed for _, seed in together), line)
        for line, together in groupby(by_line, key=lambda pair: pair[0])
    ]
    runs = row.runs.values()
    known = [run.audit.get("passed") for run in runs if run.audit is not None]
    directories = [
        path
        for run in runs
        for path in (run.path, *(f"{p} (the same run again: not counted)" for p in run.others))
    ]
    return {
        "row": row,
        "seeds": seeds_text(row.runs),
        "command": details.command,
        "audits": audits,
        "passed": all(value is True for value in known) if known else None,
        "environment": "; ".join(filter(None, dict.fromkeys(_machine(run) for run in runs))),
        "directories": directories,
    }


def _machine(run: Run) -> str:
    """Return versions, commit and processor in one line."""
    environment = run.environment or {}
    packages = environment.get("packages")
    found = packages if isinstance(packages, Mapping) else {}
    parts = [f"{name} {found[name]}" for name in ("deepccg", "torch") if name in found]
    parts += [f"commit {environment['commit']}"] if environment.get("commit") else []
    parts += [str(environment[key]) for key in ("processor", "device") if environment.get(key)]
    return ", ".join(parts)


def _facets(
    comparisons: Sequence[Comparison], styles: Mapping[str, SeriesStyle]
) -> dict[str, dict[str, tuple[str, int | None]]]:
    """Return what there is to filter by: name and colour of each value, if there are several."""
    slots: dict[str, int] = {}
    for row in (row for comparison in comparisons for row in comparison.rows):
        slots.setdefault(row.method, styles[row.label].slot)
    found: dict[str, dict[str, tuple[str, int | None]]] = {
        "method": {m: (method_name(m), slot) for m, slot in slots.items()},
        "dataset": {c.dataset: (DATASETS.get(c.dataset, c.dataset), None) for c in comparisons},
        "stream": {c.stream: (c.stream.replace("-", " "), None) for c in comparisons},
        "scenario": {c.scenario: (f"{c.scenario}-incremental", None) for c in comparisons},
    }
    return {name: choices for name, choices in found.items() if len(choices) > 1}


def _read(name: str) -> str:
    return files("deepccg.report").joinpath("page_files", name).read_text(encoding="utf-8")
