"""The figure and table of representation shift in docs/results.md, from the records of runs."""

from pathlib import Path

from deepccg.records import find_runs
from deepccg.report import group_runs, looks, plot_shift, read_run, shift_table
from deepccg.report.assemble import with_current_defaults


def shift_section(records: Path, dataset: str, stream: str, picture: Path) -> str:
    """Slopes of the methods whose shift was recorded, and ``picture`` of them, drawn anew."""
    runs = [run for each in find_runs([records]) if (run := read_run(each)) and run.shifts]
    for comparison in group_runs(map(with_current_defaults, runs)):
        table = shift_table(comparison.rows)
        if (comparison.dataset, comparison.stream) != (dataset, stream) or table is None:
            continue
        look_of = looks((row.label, row.method) for row in comparison.rows)
        followed = {row.label: (row.shifts, look_of[row.label]) for row in comparison.rows}
        plot_shift(followed, picture, title=comparison.title)
        return f"{table.markdown().strip()}\n\n![Representation shift](images/{picture.name})"
    return "Not run yet."
