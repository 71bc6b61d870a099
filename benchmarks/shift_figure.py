"""The figure and table of representation shift in docs/results/."""

from pathlib import Path

from result_tables import recorded_runs

from deepccg.report import group_runs, read_run, series_styles, shift_table
from deepccg.report.assemble import with_current_defaults
from deepccg.report.figures import save, shift_scatter


def shift_section(dataset: str, stream: str, picture: Path) -> str:
    """Slopes of the methods whose shift was recorded, and ``picture`` of them, drawn again."""
    runs = [run for each in recorded_runs() if (run := read_run(each)) and run.shifts]
    for comparison in group_runs(map(with_current_defaults, runs)):
        table = shift_table(comparison.rows)
        if (comparison.dataset, comparison.stream) != (dataset, stream) or table is None:
            continue
        styles = series_styles((row.label, row.method) for row in comparison.rows)
        shifts = {row.label: row.shifts for row in comparison.rows}
        save(shift_scatter(shifts, styles), picture, title=comparison.title)
        return f"{table.markdown().strip()}\n\n![Representation shift](../images/{picture.name})"
    return "Not run yet."
