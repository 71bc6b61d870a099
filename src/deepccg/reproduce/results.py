"""Each cell of a table: our accuracy, the paper's, and the difference on paired seeds."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepccg.records import (
    Estimate,
    Interval,
    RecordedRun,
    estimate,
    paired_difference,
    summary,
)
from deepccg.reproduce.plan import Column, Plan, Variant

Runs = Mapping[tuple[Variant, Column, int], RecordedRun]


@dataclass(frozen=True)
class CellResult:
    """One cell.

    Args:
        variant: The row.
        column: The column.
        values: The accuracy of each seed's run, a fraction.
        paper: The paper's number.
        difference: From the reference, over the seeds that both have; ``None`` for the reference.
    """

    variant: Variant
    column: Column
    values: Mapping[int, float]
    paper: Estimate | None
    difference: Interval | None

    @property
    def accuracy(self) -> Estimate | None:
        """Over the seeds; ``None`` where there is no run."""
        return estimate(list(self.values.values())) if self.values else None


def results(plan: Plan, runs: Runs) -> list[CellResult]:
    """Every cell, column by column; one without runs has no values."""
    found = []
    for column in plan.columns:
        rows = plan.rows(column)
        values = {variant: dict(_values(plan, variant, column, runs)) for variant in rows}
        base = values.get(plan.reference, {})
        for variant in rows:
            own = values[variant]
            lead = None if variant == plan.reference else paired_difference(own, base)
            found.append(CellResult(variant, column, own, plan.paper(variant, column), lead))
    return found


def results_csv(found: Sequence[CellResult], reference: Variant) -> str:
    """The cells as CSV with all digits: percent, empty where there is none."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        (
            "dataset", "stream", "scenario", "memory", "method", "preset", "seeds",
            "accuracy", "standard_error", "paper_accuracy", "paper_standard_error",
            "reference", "difference", "difference_low", "difference_high", "paired_seeds",
        )
    )  # fmt: skip
    for each in found:
        column, lead = each.column, each.difference
        numbers = [*_two(each.accuracy), *_two(each.paper)]
        difference = (lead.value, lead.low, lead.high) if lead else (None,) * 3
        writer.writerow(
            [
                column.dataset,
                column.stream,
                column.scenario,
                column.memory,
                each.variant.method,
                each.variant.preset,
                len(each.values),
                *map(_percent, numbers),
                reference,
                *map(_percent, difference),
                lead.n if lead else 0,
            ]
        )
    return file.getvalue()


def _values(
    plan: Plan, variant: Variant, column: Column, runs: Runs
) -> Iterator[tuple[int, float]]:
    for seed in plan.seeds:
        run = runs.get((variant, column, seed))
        value = summary(run.evaluations())[column.metric] if run else None
        if value is not None:
            yield seed, value


def _two(value: Estimate | None) -> tuple[float | None, float | None]:
    return (value.mean, value.standard_error) if value else (None, None)


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else round(100 * fraction, 4)
