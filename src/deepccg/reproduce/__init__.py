"""The paper's experiments: their runs, those that are finished already, and the results."""

from deepccg.reproduce.duration import duration_note
from deepccg.reproduce.plan import QUICK_NOTE, Column, Plan, Variant, plan
from deepccg.reproduce.results import CellResult, FinishedRuns, Runs, results, results_csv

__all__ = [
    "QUICK_NOTE",
    "CellResult",
    "Column",
    "FinishedRuns",
    "Plan",
    "Runs",
    "Variant",
    "duration_note",
    "plan",
    "results",
    "results_csv",
]
