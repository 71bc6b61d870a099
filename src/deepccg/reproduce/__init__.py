"""The paper's experiments: which runs they are, which are there already, what they answer."""

from deepccg.reproduce.answers import Answer, Runs, answers, answers_csv
from deepccg.reproduce.plan import EXPERIMENTS, QUICK_NOTE, Plan, plan
from deepccg.reproduce.reuse import Finished
from deepccg.reproduce.table import Column, Variant

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
