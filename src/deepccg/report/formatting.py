"""How numbers are written: once for all tables, figures and pages."""

import math
from decimal import ROUND_HALF_UP, Decimal

from deepccg.records import Estimate, Interval

DASH = "-"  # stands for a number there is not
ENOUGH_SEEDS = 5  # below, an interval is shown and nothing is said of it

_TENTH = Decimal("0.1")
_DIGITS = 12  # of a fraction; beyond, sums of floats end a hair beside the half they stand for


def in_percent(fraction: float, sign: str = "") -> str:
    """Write a fraction in percent with one decimal; halves are rounded away from zero.

    Args:
        fraction: The number.
        sign: ``+`` to show it before positive numbers, too.

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
