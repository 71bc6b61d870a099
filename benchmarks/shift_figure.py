"""The figure and table of representation shift in docs/results.md, from the records of runs."""

from pathlib import Path

from deepccg.cli.completing import completed
from deepccg.records import find_runs
from deepccg.report import grouped, read_run, series_styles, shift_sheet
from deepccg.report.figures import save, shift_scatter
from deepccg.report.shift_table import shifts_of


def shift_table(records: Path, dataset: str, stream: str, picture: Path) -> str:
    """Slopes of the methods whose shift was recorded, and ``picture`` of them, drawn anew."""
    runs = [run for each in find_runs([records]) if (run := read_run(each)) and run.shifts]
    for setting in grouped(map(completed, runs)):
        sheet = shift_sheet(setting.rows)
        if (setting.dataset, setting.stream) != (dataset, stream) or sheet is None:
            continue
        styles = series_styles((row.label, row.method) for row in setting.rows)
        shifts = {row.label: shifts_of(row) for row in setting.rows}
        save(shift_scatter(shifts, styles), picture, title=setting.title)
        return f"{sheet.markdown().strip()}\n\n![Representation shift](images/{picture.name})"
    return "Not run yet."
