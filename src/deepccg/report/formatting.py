"""How numbers and names are written: once for all tables, figures and pages."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import groupby
from typing import Any

from deepccg.records import METHOD_ENTRIES, Estimate, Interval

DASH = "-"  # stands for a number there is not
ENOUGH_SEEDS = 5  # below, an interval is shown and nothing is said of it
DATASETS: Mapping[str, str] = {
    "digits": "Digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "mini-imagenet": "MiniImageNet",
}

_TENTH = Decimal("0.1")
_DIGITS = 12  # of a fraction; beyond, sums of floats end a hair beside the half they stand for


def in_percent(fraction: float, sign: str = "") -> str:
    """Write a fraction in percent with one decimal; halves are rounded away from zero.

    With the sign ``+`` positive numbers have it, too.

    >>> in_percent(0.1385), in_percent(0.0035), in_percent(-0.0004), in_percent(0.02, "+")
    ('13.9', '0.4', '0.0', '+2.0')
    """
    exact = 100 * Decimal(str(round(fraction, _DIGITS)))
    return f"{exact.quantize(_TENTH, ROUND_HALF_UP):{sign}z.1f}"  # z: no minus before a zero


def percent(value: Estimate | None) -> str:
    """Write an estimate in percent with its standard error.

    >>> percent(Estimate(mean=0.6929, standard_error=0.0089, n=3))
    '69.3 ± 0.9'
    >>> percent(Estimate(mean=0.25, standard_error=None, n=1)), percent(None)
    ('25.0', '-')
    """
    if value is None:
        return DASH
    error = "" if value.standard_error is None else f" ± {in_percent(value.standard_error)}"
    return in_percent(value.mean) + error


def difference_text(difference: Interval) -> str:
    """Write a difference in points; a star where its interval excludes 0 over enough seeds.

    >>> difference_text(Interval(0.021, 0.004, 0.038, n=5))
    '+2.1 [+0.4, +3.8]*'
    """
    text = in_percent(difference.value, "+")
    low, high = difference.low, difference.high
    if low is None or high is None:
        return text
    starred = difference.n >= ENOUGH_SEEDS and (low > 0 or high < 0)
    return f"{text} [{in_percent(low, '+')}, {in_percent(high, '+')}]" + "*" * starred


def slope_text(slope: Interval) -> str:
    """Write a slope and its interval, to the digits that the interval's width justifies.

    >>> slope_text(Interval(-1.5, -2.0, -1.0, 40)), slope_text(Interval(0.25, None, None, 2))
    ('-1.50 [-2.00, -1.00]', '0.25')
    >>> slope_text(Interval(0.0008, -1.269, 1.27, 40)), slope_text(Interval(1234.0, 900, 1568.0, 9))
    ('0.0 [-1.3, 1.3]', '1234 [900, 1568]')
    """
    if slope.low is None or slope.high is None:
        return f"{slope.value:.3g}"
    half = (slope.high - slope.low) / 2
    decimals = max(0, 1 - math.floor(math.log10(half))) if 0 < half < math.inf else 2
    # A bound that is rounded to zero keeps its minus: it shows on which side it lies.
    bounds = ", ".join(f"{bound:.{decimals}f}" for bound in (slope.low, slope.high))
    return f"{slope.value:z.{decimals}f} [{bounds}]"


def method_name(method: str) -> str:
    """Return what readers call a method; for a user's class its name, without the module.

    >>> method_name("er-ace"), method_name("my.module:Nearest")
    ('ER-ACE', 'Nearest')
    """
    entry = METHOD_ENTRIES.get(method)
    return entry.title if entry else method.rpartition(":")[2] or method


def comparison_title(dataset: str, stream: str, scenario: str) -> str:
    """Return the heading of what was run.

    >>> comparison_title("cifar10", "shifting-window", "task")
    'CIFAR-10, shifting window, task-incremental'
    """
    return f"{DATASETS.get(dataset, dataset)}, {stream.replace('-', ' ')}, {scenario}-incremental"


def memory_words(config: Mapping[str, Any]) -> str:
    """Return the memory's budget in words.

    >>> memory_words({"memory_per_class": 10}), memory_words({"memory_bytes": 308800})
    ('10 per class', '308,800 bytes')
    """
    if (per_class := config.get("memory_per_class")) is not None:
        return f"{per_class} per class"
    if (size := config.get("memory_bytes")) is not None:
        return f"{size:,} bytes"
    return "none" if config.get("memory") is None else f"{config['memory']} in total"


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
    groups = groupby(enumerate(sorted(seeds)), key=lambda pair: pair[1] - pair[0])
    runs = [[seed for _, seed in consecutive] for _, consecutive in groups]
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
