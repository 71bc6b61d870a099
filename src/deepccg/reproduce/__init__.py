"""The paper's experiments: their runs, those that are finished already, and the results."""

from deepccg.reproduce.plan import EXPERIMENTS, QUICK_NOTE, Column, Plan, Variant, plan
from deepccg.reproduce.results import CellResult, Runs, results, results_csv
from deepccg.reproduce.reuse import FinishedRuns

__all__ = [
    "EXPERIMENTS",
    "QUICK_NOTE",
    "CellResult",
    "Column",
    "FinishedRuns",
    "Plan",
    "Runs",
    "Variant",
    "plan",
    "results",
    "results_csv",
]
