"""Which colour, dashes and marker belong to which method, on light and on dark paper."""

from collections.abc import Iterable
from dataclasses import dataclass

from deepccg.records import METHOD_ENTRIES

# The hues of Okabe and Ito (2008), which colour-blind readers can tell apart, toned until lines
# stand out from the paper: 3:1 on light, more on dark.
LIGHT = ("#0069A8", "#C65300", "#00805C", "#B3487F", "#2E8CC4", "#A97400", "#5F6872", "#1F242B")
DARK = ("#5CB3F2", "#FF9248", "#35CFA0", "#EE9CCB", "#A5DBFF", "#FFC85C", "#A0AAB6", "#E8EDF3")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
MARKERS = ("circle", "square", "triangle", "diamond")
_PLOT_MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D"}

# Viridis at ninths: an order of lightness that survives grey printing and colour blindness.
_VIRIDIS = (
    (68, 1, 84), (71, 45, 123), (59, 82, 139), (44, 114, 142), (33, 145, 140),
    (40, 174, 128), (94, 201, 98), (173, 220, 48), (253, 231, 37),
)  # fmt: skip


@dataclass(frozen=True)
class Look:
    """How a row is drawn: the number of its colour, and which of that colour's variants it is."""

    slot: int
    variant: int

    @property
    def dashes(self) -> str:
        """As SVG writes them; empty for a whole line."""
        return DASHES[self.variant % len(DASHES)]

    @property
    def marker(self) -> str:
        """The name of a shape."""
        return MARKERS[self.variant % len(MARKERS)]

    @property
    def plot_marker(self) -> str:
        """What matplotlib calls that shape."""
        return _PLOT_MARKERS[self.marker]


def looks(rows: Iterable[tuple[str, str]]) -> dict[str, Look]:
    """A look for each label, given as (label, method); no two alike before all are used.

    >>> looks([("ER", "er"), ("ESMER", "esmer")])
    {'ER': Look(slot=1, variant=0), 'ESMER': Look(slot=1, variant=1)}
    """
    # Whoever has a colour to itself first; unknown methods, which take what is left, last.
    known = sorted(METHOD_ENTRIES, key=lambda name: METHOD_ENTRIES[name].shares_slot)
    ordered = sorted(
        dict(rows).items(),
        key=lambda row: known.index(row[1]) if row[1] in known else len(known),
    )
    taken = [0] * len(LIGHT)
    found = {}
    for label, method in ordered:
        if method in METHOD_ENTRIES:
            slot = METHOD_ENTRIES[method].slot
        else:
            slot = min(range(len(LIGHT)), key=lambda s: taken[s])
        found[label] = Look(slot, taken[slot])
        taken[slot] += 1
    return found


def heat(fraction: float) -> tuple[int, int, int]:
    """The colour of a value between 0 and 1.

    >>> heat(0.0), heat(1.0)
    ((68, 1, 84), (253, 231, 37))
    """
    place = min(max(fraction, 0.0), 1.0) * (len(_VIRIDIS) - 1)
    low = min(int(place), len(_VIRIDIS) - 2)
    part = place - low
    red, green, blue = (
        round(a + part * (b - a)) for a, b in zip(_VIRIDIS[low], _VIRIDIS[low + 1], strict=True)
    )
    return red, green, blue


def hexadecimal(colour: tuple[int, int, int]) -> str:
    """As HTML writes it.

    >>> hexadecimal((255, 0, 16))
    '#ff0010'
    """
    return "#{:02x}{:02x}{:02x}".format(*colour)
