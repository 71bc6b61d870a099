"""The table of representation shift: fitted slopes with their intervals."""

import math
from collections.abc import Sequence

from deepccg.records import Interval, Shift, ShiftScale, fit_line, shift_points
from deepccg.report.settings import Row
from deepccg.report.sheet import Cell, Line, Sheet
from deepccg.report.tables import DASH


def shift_sheet(rows: Sequence[Row]) -> Sheet | None:
    """The fitted slopes with their 95 % intervals; ``None`` where no run recorded shifts."""
    lines = []
    for row in rows:
        shifts = shifts_of(row)
        if not shifts:
            continue
        cells = [_slope(shifts, "relative"), _slope(shifts, "distance"), Cell(f"{len(shifts):,}")]
        lines.append(Line(row.label, row.method, row.key, "", tuple(cells)))
    if not lines:
        return None
    told = (
        "Points of accuracy on the first task's test images per unit of shift in one batch, with "
        "95 % intervals that take batches as independent."
    )
    columns = ("Slope, scaled shift", "Slope, shift", "Batches")
    return Sheet("Representation shift", told, columns, tuple(lines))


def shifts_of(row: Row) -> list[Shift]:
    """Return the recorded shifts of all seeds."""
    return [shift for run in row.runs.values() for shift in run.shifts]


def slope_text(slope: Interval) -> str:
    """A slope and its interval, to the digits that the interval's width leaves worth showing.

    >>> slope_text(Interval(-1.5, -2.0, -1.0, 40)), slope_text(Interval(0.25, None, None, 2))
    ('-1.50 [-2.00, -1.00]', '0.25')
    >>> slope_text(Interval(0.0008, -1.269, 1.27, 40)), slope_text(Interval(1234.0, 900, 1568.0, 9))
    ('0.0 [-1.3, 1.3]', '1234 [900, 1568]')
    """
    if slope.low is None or slope.high is None:
        return f"{slope.value:.3g}"
    half = (slope.high - slope.low) / 2
    decimals = max(0, 1 - math.floor(math.log10(half))) if 0 < half < math.inf else 2
    # A bound that is rounded to zero keeps its minus: it shows on which side it lies.
    bounds = ", ".join(f"{bound:.{decimals}f}" for bound in (slope.low, slope.high))
    return f"{slope.value:z.{decimals}f} [{bounds}]"


def _slope(shifts: Sequence[Shift], scale: ShiftScale) -> Cell:
    x, y = shift_points(shifts, scale, "accuracy_change")
    line = fit_line(x, 100 * y)
    return Cell(DASH) if line is None else Cell(slope_text(line.slope), line.slope.value)
