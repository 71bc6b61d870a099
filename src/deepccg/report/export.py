"""The report's tables and figures as files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from deepccg.records import write_atomically
from deepccg.report.comparisons import Comparison
from deepccg.report.details import RowDetails
from deepccg.report.figures import comparison_figures, save, series_styles
from deepccg.report.table import Table
from deepccg.report.tables import cost_table, overview_table, results_table, shift_table


def export_report(
    comparisons: Sequence[Comparison],
    details: Mapping[str, RowDetails],
    directory: str | os.PathLike[str],
) -> list[Path]:
    """Write tables as Markdown, LaTeX and CSV, figures as PNG and PDF; returns the files.

    Each file is whole or not there.
    """
    target = Path(directory)
    styles = series_styles((row.label, row.method) for each in comparisons for row in each.rows)
    written: list[Path] = []
    if len(comparisons) > 1:
        written += _write_table(overview_table(comparisons), target / "overview")
    for comparison in comparisons:
        tables = {
            "results": results_table(comparison),
            "cost": cost_table(comparison),
            "shift": shift_table(comparison.rows),
        }
        for name, table in tables.items():
            if table is not None:
                written += _write_table(table, target / f"{comparison.key}-{name}")
        for name, figure in comparison_figures(comparison, details, styles).items():
            if not figure.panels[0].empty:
                stem = target / f"{comparison.key}-{name}"
                paths = [stem.with_name(stem.name + suffix) for suffix in (".png", ".pdf")]
                written += save(figure, *paths, title=comparison.title)
    return written


def _write_table(table: Table, path: Path) -> list[Path]:
    texts = {".md": table.markdown(), ".tex": table.latex(), ".csv": table.csv()}
    for suffix, text in texts.items():
        write_atomically(path.with_name(path.name + suffix), text.encode())
    return [path.with_name(path.name + suffix) for suffix in texts]
