"""Numbers within the sentences of docs/results.md, so that no sentence is older than its records.

A row is a method, or METHOD@PRESET. Everything is in percent or points.
"""

from result_tables import Key, Runs, accuracies, estimates, paper_number

from deepccg.records import Estimate, paired_difference
from deepccg.report import difference_text
from deepccg.report.formatting import in_percent


def accuracy(runs: Runs, dataset: str, stream: str, scenario: str, row: str) -> str:
    """The mean over seeds: ``72.9``."""
    return in_percent(_ours(runs, _key(dataset, stream, scenario, row)).mean)


def from_paper(runs: Runs, dataset: str, stream: str, scenario: str, row: str) -> str:
    """The mean minus the paper's: ``+6.2``."""
    key = _key(dataset, stream, scenario, row)
    return in_percent(_ours(runs, key).mean - _papers(key).mean, "+")


def minus(runs: Runs, dataset: str, stream: str, scenario: str, row: str, other: str) -> str:
    """One row minus another on paired seeds, with the 95 % interval: ``-3.0 [-5.5, -0.5]``."""
    where = (dataset, stream, scenario)
    found = paired_difference(*(accuracies(runs, _key(*where, each)) for each in (row, other)))
    if found is None:
        raise ValueError(f"{row} and {other} have no seed in common in {' '.join(where)}")
    return difference_text(found).rstrip("*")


def paper_minus(dataset: str, stream: str, scenario: str, row: str, other: str) -> str:
    """The same of the paper's means: ``+0.5``."""
    first, second = (_papers(_key(dataset, stream, scenario, each)).mean for each in (row, other))
    return in_percent(first - second, "+")


def _key(dataset: str, stream: str, scenario: str, row: str) -> Key:
    method, _, preset = row.partition("@")
    return (dataset, stream, scenario, method, preset or "default")


def _ours(runs: Runs, key: Key) -> Estimate:
    found = estimates(runs[key])[f"{key[2]}_accuracy"] if key in runs else None
    if found is None:
        raise ValueError(f"there is no run of {' '.join(key)}")
    return found


def _papers(key: Key) -> Estimate:
    found = paper_number(key)
    if found is None:
        raise ValueError(f"the paper has no number for {' '.join(key)}")
    return found
