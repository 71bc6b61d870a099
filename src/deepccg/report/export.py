"""The report's tables and figures as files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from deepccg.records import write_atomically
from deepccg.report.about import About
from deepccg.report.figures import save, series_styles, setting_figures
from deepccg.report.settings import Setting
from deepccg.report.sheet import Sheet
from deepccg.report.sheets import cost_sheet, overview_sheet, results_sheet
from deepccg.report.shift_table import shift_sheet


def export_report(
    settings: Sequence[Setting], about: Mapping[str, About], directory: str | os.PathLike[str]
) -> list[Path]:
    """Write tables as Markdown, LaTeX and CSV, figures as PNG and PDF; returns the files.

    Each file is whole or not there.
    """
    target = Path(directory)
    styles = series_styles((row.label, row.method) for setting in settings for row in setting.rows)
    written: list[Path] = []
    if len(settings) > 1:
        written += _write_sheet(overview_sheet(settings), target / "overview")
    for setting in settings:
        sheets = {
            "results": results_sheet(setting),
            "cost": cost_sheet(setting),
            "shift": shift_sheet(setting.rows),
        }
        for name, sheet in sheets.items():
            if sheet is not None:
                written += _write_sheet(sheet, target / f"{setting.key}-{name}")
        for name, figure in setting_figures(setting, about, styles).items():
            if not figure.panels[0].empty:
                stem = target / f"{setting.key}-{name}"
                paths = [stem.with_name(stem.name + suffix) for suffix in (".png", ".pdf")]
                written += save(figure, *paths, title=setting.title)
    return written


def _write_sheet(sheet: Sheet, path: Path) -> list[Path]:
    texts = {".md": sheet.markdown(), ".tex": sheet.latex(), ".csv": sheet.csv()}
    for suffix, text in texts.items():
        write_atomically(path.with_name(path.name + suffix), text.encode())
    return [path.with_name(path.name + suffix) for suffix in texts]
