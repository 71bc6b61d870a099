"""Readable names of methods, data sets, streams and seeds."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deepccg.records import METHOD_ENTRIES

DATASETS: Mapping[str, str] = {
    "digits": "Digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "mini-imagenet": "MiniImageNet",
}


def method_name(method: str) -> str:
    """Return what readers call a method; for a user's class its name, without the module.

    >>> method_name("er-ace"), method_name("my.module:Nearest")
    ('ER-ACE', 'Nearest')
    """
    if method in METHOD_ENTRIES:
        return METHOD_ENTRIES[method].title
    return method.rpartition(":")[2] or method


def dataset_name(dataset: str) -> str:
    """Return what readers call a data set: CIFAR-10 for ``cifar10``; others are unchanged."""
    return DATASETS.get(dataset, dataset)


def stream_name(stream: str) -> str:
    """Return what readers call a stream: ``shifting-window`` without its hyphen."""
    return stream.replace("-", " ")


def comparison_title(dataset: str, stream: str, scenario: str) -> str:
    """Return the heading of what was run.

    >>> comparison_title("cifar10", "shifting-window", "task")
    'CIFAR-10, shifting window, task-incremental'
    """
    return f"{dataset_name(dataset)}, {stream_name(stream)}, {scenario}-incremental"


def slug(text: str) -> str:
    """Reduce text to letters, digits and single hyphens, for links and files.

    >>> slug("a.b:C <script>")
    'a-b-c-script'
    """
    plain = "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower())
    return "-".join(plain.split())[:120]


def digest(value: object) -> str:
    """Return a short hash of plain values."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def seeds_text(seeds: Iterable[int]) -> str:
    """Write seeds as ``--seeds`` takes them.

    >>> seeds_text([0, 1, 2, 5]), seeds_text([3])
    ('0-2,5', '3')
    """
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and runs[-1][-1] == seed - 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ",".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def differing_fields(
    names: Sequence[str], fields: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return, for each item, its fields in which items of the same name differ.

    >>> differing_fields(["er", "er", "sgd"], [{"lr": 1, "seed": 0}, {"lr": 2, "seed": 0}, {}])
    [{'lr': 1}, {'lr': 2}, {}]
    """
    found = []
    for name, own in zip(names, fields, strict=True):
        same = [other for label, other in zip(names, fields, strict=True) if label == name]
        keys = dict.fromkeys(key for other in same for key in other)
        differing = [k for k in keys if len({repr(other.get(k)) for other in same}) > 1]
        found.append({key: own.get(key) for key in differing})
    return found
