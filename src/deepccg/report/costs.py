"""What methods spend: network passes, memory and time; and accuracy against each of these."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deepccg.records import Estimate
from deepccg.report.comparisons import Row
from deepccg.report.runs import Run, cost, held_bytes

Point = tuple[Row, Estimate, Estimate]


@dataclass(frozen=True)
class Cost:
    """One kind of cost.

    Args:
        name: In the names of files.
        title: What accuracy is drawn against.
        axis: The same, with its unit.
        of: Computes it for a row, over its seeds; ``None`` if some run has no record of it.
    """

    name: str
    title: str
    axis: str
    of: Callable[[Row], Estimate | None]


def network_passes(row: Row, *directions: str) -> Estimate | None:
    """Return images passed through the network per example learned; by default both ways."""
    ways = directions or ("forward", "backward")

    def of(run: Run) -> float | None:
        counts = [cost(run, "passes", "learning", f"{way}_images") for way in ways]
        known = [count for count in counts if count is not None]
        examples = max(run.evaluations[-1].examples, 1)
        return sum(known) / examples if len(known) == len(counts) else None

    return row.mean_of(map(of, row.runs.values()))


def stored_bytes(row: Row) -> Estimate | None:
    """Return what is kept in addition to the network in use, in bytes."""
    return row.mean_of(map(held_bytes, row.runs.values()))


def seconds_learning(row: Row) -> Estimate | None:
    """Return the wall time of a whole run, without scoring."""
    return row.mean_of(run.seconds for run in row.runs.values())


def milliseconds_per_batch(row: Row) -> Estimate | None:
    """Return the wall time of one step, without scoring."""

    def of(run: Run) -> float | None:
        return None if run.seconds is None else 1000 * run.seconds / run.evaluations[-1].step

    return row.mean_of(map(of, row.runs.values()))


COSTS = (
    Cost("passes", "network passes", "network passes per example", network_passes),
    Cost("bytes", "memory", "stored bytes", stored_bytes),
    Cost("seconds", "time", "seconds learning", seconds_learning),
)


def accuracy_against(rows: Iterable[Row], kind: Cost, metric: str) -> list[Point]:
    """Return each row's cost and accuracy; nothing if all rows cost the same.

    A row that costs nothing has no place on a logarithmic axis.
    """
    points = [
        (row, spent, value)
        for row in rows
        if (spent := kind.of(row)) and spent.mean > 0 and (value := row.metric(metric))
    ]
    return points if len({spent.mean for _, spent, _ in points}) > 1 else []


def free_of(rows: Iterable[Row], kind: Cost) -> list[Row]:
    """Return the rows that cost nothing."""
    return [row for row in rows if (spent := kind.of(row)) and spent.mean == 0]


def processors(rows: Sequence[Row]) -> set[str]:
    """Return the processors on which these rows were timed, as far as they are known."""
    runs = [run for row in rows for run in row.runs.values() if run.seconds is not None]
    return {str((run.environment or {}).get("processor") or "unknown") for run in runs}
