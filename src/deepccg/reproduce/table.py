"""Rows and columns of the paper's tables."""

from dataclasses import dataclass

from deepccg.core import InputError
from deepccg.experiment import PRESETS, learner_class
from deepccg.records import Mode


@dataclass(frozen=True)
class Variant:
    """A method under a preset: a row.

    >>> Variant.parse("deepccg@paper"), str(Variant.parse("er"))
    (Variant(method='deepccg', preset='paper'), 'er')
    """

    method: str
    preset: str = "default"

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """``METHOD`` or ``METHOD@PRESET``, both checked."""
        method, at, preset = text.strip().partition("@")
        learner_class(method)
        if at and preset not in PRESETS:
            raise InputError(f"{text}: write METHOD@PRESET with one of {', '.join(PRESETS)}")
        return cls(method, preset or "default")

    def __str__(self) -> str:
        return self.method if self.preset == "default" else f"{self.method}@{self.preset}"


@dataclass(frozen=True)
class Column:
    """A question that every row is asked.

    Args:
        dataset: As in ``deepccg data``.
        stream: ``disjoint`` or ``shifting-window``.
        scenario: ``task`` or ``class``: whose memory and presets are taken, and what is scored.
        memory: Stored examples in total; ``None``: the scenario's usual ones.
    """

    dataset: str
    stream: str
    scenario: Mode
    memory: int | None = None

    @property
    def metric(self) -> str:
        """The name of what is reported."""
        return f"{self.scenario}_accuracy"
