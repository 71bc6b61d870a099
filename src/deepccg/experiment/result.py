"""What a run gives back, and how it shows itself."""

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepccg.core import Learner
from deepccg.experiment.config import RunConfig
from deepccg.records import Evaluation, summary


@dataclass(frozen=True, repr=False)
class RunResult:
    """A finished run. It shows itself by its main scores, and in a notebook as a table."""

    directory: Path  # where everything was written
    config: RunConfig
    evaluations: list[Evaluation]  # in order of time; metrics are functions of these
    learner: Learner
    examples_read: int  # training examples; offline ones count at each read
    audit: dict[str, Any] | None  # of ``audit.json``; None if an earlier version began the run

    @property
    def summary(self) -> dict[str, float | None]:
        """Every metric, as fractions, by name."""
        return summary(self.evaluations)

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {_percent(value)}" for name, value in self._scores().items())
        return f"<RunResult {self._title()}: {scores}; {self.directory}>"

    def _repr_html_(self) -> str:
        """Return a small table for notebooks, one row for each score; everything is escaped."""
        rows = "".join(
            f"<tr><td>{name}</td><td style='text-align:right'>{_percent(value)}</td></tr>"
            for name, value in self._scores().items()
        )
        title, where = html.escape(self._title()), html.escape(str(self.directory))
        caption = f"<caption style='white-space:nowrap'>{title}<br><code>{where}</code></caption>"
        return f"<table>{caption}{rows}</table>"

    def _title(self) -> str:
        config = self.config
        return f"{config.method.name} on {config.dataset}, seed {config.seed}"

    def _scores(self) -> dict[str, float | None]:
        """The average accuracy and forgetting, task- and class-incremental."""
        found = self.summary
        shown = ("task_accuracy", "class_accuracy", "task_forgetting", "class_forgetting")
        return {name.replace("_", " "): found[name] for name in shown}


def _percent(value: float | None) -> str:
    return "not defined" if value is None else f"{100 * value:.1f} %"
