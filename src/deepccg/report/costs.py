"""What methods spend: network passes, memory and time.

Each function returns the mean over a row's seeds; ``None`` if some run has no record of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from deepccg.records import Estimate
from deepccg.report.comparisons import Row
from deepccg.report.runs import Run


def network_passes(row: Row, forward: int = 1, backward: int = 2) -> Estimate | None:
    """Return images passed through the network per example learned.

    A pass backward takes about as long as two forward, for weights and for activations, and counts
    as much by default.
    """

    def of(run: Run) -> float | None:
        there = _audited(run, "passes", "learning", "forward_images")
        back = _audited(run, "passes", "learning", "backward_images")
        if there is None or back is None:
            return None
        return (forward * there + backward * back) / max(run.evaluations[-1].examples, 1)

    return row.mean_of(map(of, row.runs.values()))


def passes_per_query(row: Row) -> int:
    """Return images passed through the network per prediction: the views that are averaged."""
    return int(row.config["method"].get("views", 1))


def stored_examples(row: Row) -> Estimate | None:
    """Return how many examples the memory holds at the end."""
    return row.mean_of(_audited(run, "memory", "examples") for run in row.runs.values())


def stored_bytes(row: Row) -> Estimate | None:
    """Return what the saved state holds in addition to the network in use, in bytes."""

    def of(run: Run) -> float | None:
        memory = (run.audit or {}).get("memory")
        kinds = memory.get("bytes") if isinstance(memory, Mapping) else None
        return sum(_number(v) or 0 for v in kinds.values()) if isinstance(kinds, Mapping) else None

    return row.mean_of(map(of, row.runs.values()))


def seconds_learning(row: Row) -> Estimate | None:
    """Return the wall time of a whole run, without scoring."""
    return row.mean_of(run.seconds for run in row.runs.values())


def milliseconds_per_batch(row: Row) -> Estimate | None:
    """Return the wall time of one step, without scoring."""
    return row.mean_of(
        None if run.seconds is None else 1000 * run.seconds / run.evaluations[-1].step
        for run in row.runs.values()
    )


def processors(rows: Sequence[Row]) -> set[str]:
    """Return the processors on which these rows were timed, as far as they are known."""
    runs = [run for row in rows for run in row.runs.values() if run.seconds is not None]
    return {str((run.environment or {}).get("processor") or "unknown") for run in runs}


def _audited(run: Run, *keys: str) -> float | None:
    """Return one number of the audit by its path."""
    value: Any = run.audit
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return _number(value)


def _number(value: object) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) < 1e18 else None  # type: ignore[arg-type]  # plain
