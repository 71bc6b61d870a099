"""What stands below a row: its command, its protocol, its machines, its memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from deepccg.report.comparisons import Comparison, Row
from deepccg.report.gallery import Stored
from deepccg.report.names import seeds_text
from deepccg.report.runs import Run


@dataclass(frozen=True)
class RowDetails:
    """Information about a row that its records do not hold.

    Args:
        command: The command that makes the row again.
        protocols: The audit of each run in one line, by seed.
        stored: The memory of the first seed, or why it is not known.
    """

    command: str
    protocols: Mapping[int, str]
    stored: Stored | str


@dataclass(frozen=True)
class Provenance:
    """How a row was made, as the page shows it."""

    row: Row
    seeds: str
    command: str
    audits: Sequence[tuple[str, str]]  # seeds, and the line that their audits share
    passed: bool | None  # all audits; None without an audit
    environment: str
    directories: Sequence[str]  # also of duplicates that do not count


def class_names(comparison: Comparison, details: Mapping[str, RowDetails]) -> dict[int, str]:
    """Return the names of classes by label, as far as a stored memory has them."""
    for row in comparison.rows:
        if isinstance(stored := details[row.key].stored, Stored):
            return dict(enumerate(stored.names))
    return {}


def provenance(row: Row, details: RowDetails) -> Provenance:
    """Return how a row was made; seeds whose audits read the same share a line."""
    by_line = sorted((line, seed) for seed, line in details.protocols.items())
    audits = [
        (seeds_text(seed for _, seed in together), line)
        for line, together in groupby(by_line, key=lambda pair: pair[0])
    ]
    known = [run.audit.get("passed") for run in row.runs.values() if run.audit is not None]
    machines = dict.fromkeys(_machine(run.environment) for run in row.runs.values())
    return Provenance(
        row=row,
        seeds=seeds_text(row.runs),
        command=details.command,
        audits=audits,
        passed=all(value is True for value in known) if known else None,
        environment="; ".join(filter(None, machines)),
        directories=[path for run in row.runs.values() for path in _directories(run)],
    )


def _directories(run: Run) -> list[str]:
    return [str(run.path), *(f"{other} (the same run again: not counted)" for other in run.others)]


def _machine(environment: Mapping[str, object] | None) -> str:
    """Return versions, commit and processor in one line."""
    if environment is None:
        return ""
    packages = environment.get("packages")
    found = packages if isinstance(packages, Mapping) else {}
    parts = [f"{name} {found[name]}" for name in ("deepccg", "torch") if name in found]
    if environment.get("commit"):
        parts.append(f"commit {environment['commit']}")
    parts += [str(environment[key]) for key in ("processor", "device") if environment.get(key)]
    return ", ".join(parts)
