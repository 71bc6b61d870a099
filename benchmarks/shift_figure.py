"""The figure and table of representation shift in docs/results.md."""

from pathlib import Path

from result_tables import recorded_runs

from deepccg.cli.completing import completed
from deepccg.report import grouped, looks, plot_shift, read_run, shift_sheet
from deepccg.report.shift_chart import shifts_of


def shift_table(dataset: str, stream: str, picture: Path) -> str:
    """Slopes of the methods whose shift was recorded, and ``picture`` of them."""
    runs = [run for each in recorded_runs() if (run := read_run(each)) and run.shifts]
    for setting in grouped(map(completed, runs)):
        sheet = shift_sheet(setting.rows)
        if (setting.dataset, setting.stream) != (dataset, stream) or sheet is None:
            continue
        look_of = looks((row.label, row.method) for row in setting.rows)
        followed = {row.label: (shifts_of(row), look_of[row.label]) for row in setting.rows}
        plot_shift(followed, picture, title=setting.title)
        return f"{sheet.markdown().strip()}\n\n![Representation shift](images/{picture.name})"
    return "Not run yet."
