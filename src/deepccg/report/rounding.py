"""How a fraction is shown in percent: once for all tables and figures."""

from decimal import ROUND_HALF_UP, Decimal

_TENTH = Decimal("0.1")
_DIGITS = 12  # of a fraction; beyond, sums of floats end a hair beside the half they stand for


def in_percent(fraction: float, sign: str = "") -> str:
    """With one decimal; a half is rounded away from zero, as readers of the paper round.

    Args:
        fraction: The number.
        sign: ``+`` to show it before positive numbers, too.

    >>> in_percent(0.1385), in_percent(0.0035), in_percent(-0.0004), in_percent(0.02, "+")
    ('13.9', '0.4', '0.0', '+2.0')
    """
    exact = 100 * Decimal(str(round(fraction, _DIGITS)))
    return f"{exact.quantize(_TENTH, ROUND_HALF_UP):{sign}z.1f}"  # z: no minus before a zero
