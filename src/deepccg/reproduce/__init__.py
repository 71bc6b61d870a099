"""The paper's experiments: which runs they are, which are there already, what they answer."""

from deepccg.reproduce.plan import EXPERIMENTS, QUICK_NOTE, Column, Plan, Variant, plan
from deepccg.reproduce.results import Answer, Runs, answers, answers_csv
from deepccg.reproduce.reuse import Finished

__all__ = [
    "EXPERIMENTS",
    "QUICK_NOTE",
    "Answer",
    "Column",
    "Finished",
    "Plan",
    "Runs",
    "Variant",
    "answers",
    "answers_csv",
    "plan",
]
