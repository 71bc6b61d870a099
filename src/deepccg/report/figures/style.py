"""Colours, dashes and markers of all figures, on light and on dark ground."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepccg.records import METHOD_ENTRIES

# First the hues of Okabe and Ito (2008), which colour-blind readers can tell apart, toned until
# lines stand out from the ground: 3:1 on light, more on dark. The others were added one by one,
# each as far as possible in Oklab (also as deuteranopes see it) from all before.
LIGHT = (
    *("#0069A8", "#C65300", "#00805C", "#B3487F", "#2E8CC4", "#A97400", "#5F6872", "#1F242B"),
    *("#340399", "#8A0700", "#884BF6", "#73176F", "#FB3A9F", "#034E21", "#2E37DA", "#B07CCF"),
    *("#17A92A", "#0E125E", "#6C6207", "#0D4172", "#B01FBE", "#4F0B05", "#45014C", "#729871"),
    "#C55AFD",
)
DARK = (
    *("#5CB3F2", "#FF9248", "#35CFA0", "#EE9CCB", "#A5DBFF", "#FFC85C", "#A0AAB6", "#E8EDF3"),
    *("#B7B1F8", "#F9F416", "#A167F1", "#ECB6A1", "#E94779", "#99F617", "#16949F", "#A7AF63"),
    *("#29B336", "#6D8BC9", "#8B8806", "#95FBBD", "#FE5CE0", "#BF775B", "#B87EB3", "#B7D34E"),
    "#F1F1A1",
)
INK, QUIET, LINE = "#22272E", "#6E7781", "#D0D7DE"  # text, secondary text and grid on white
DASHES = ((), (6, 3), (2, 3), (8, 3, 2, 3))
MARKERS = ("circle", "square", "triangle", "diamond")


@dataclass(frozen=True)
class SeriesStyle:
    """How a series is drawn."""

    slot: int  # the number of its colour
    variant: int = 0  # which dashes and marker it has among the series of that colour
    method: str = ""  # that the page's filters know it by

    @property
    def colour(self) -> str:
        """On white."""
        return LIGHT[self.slot]

    @property
    def dashes(self) -> tuple[float, ...]:
        """Lengths of dashes and gaps; empty for a solid line."""
        return DASHES[self.variant % len(DASHES)]

    @property
    def marker(self) -> str:
        """The name of a shape; with the dashes there are sixteen combinations."""
        return MARKERS[(self.variant + self.variant // len(DASHES)) % len(MARKERS)]


def series_styles(rows: Iterable[tuple[str, str]]) -> dict[str, SeriesStyle]:
    """Return a style for each label, given as (label, method); no two are alike if possible.

    A method of the package has its colour in every report; others take what is left.

    >>> series_styles([("ER", "er"), ("ER (lr=1)", "er")])["ER (lr=1)"]
    SeriesStyle(slot=1, variant=1, method='er')
    """
    taken = [0] * len(LIGHT)
    found = {}
    for label, method in sorted(dict(rows).items(), key=lambda row: row[1] not in METHOD_ENTRIES):
        entry = METHOD_ENTRIES.get(method)
        slot = entry.slot if entry else taken.index(min(taken))
        found[label] = SeriesStyle(slot, taken[slot], method)
        taken[slot] += 1
    return found


def scale_colours(values: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Return colours ``[..., 4]`` of values between 0 and 1; transparent where they are NaN.

    Viridis (Smith and van der Walt, CC0): its order of lightness survives grey printing and colour
    blindness.

    >>> scale_colours([0.0, 1.0, np.nan]).tolist()
    [[68, 1, 84, 255], [253, 231, 36, 255], [0, 0, 0, 0]]
    """
    table = _viridis()
    known = np.isfinite(place := np.asarray(values, dtype=np.float64))
    index = np.clip(np.where(known, place, 0) * len(table), 0, len(table) - 1).astype(np.int64)
    return np.where(known[..., None], table[index], 0).astype(np.uint8)


@functools.cache
def _viridis() -> npt.NDArray[np.uint8]:
    """The 256 colours of the scale, opaque, ``[256, 4]``."""
    text = Path(__file__).parents[1].joinpath("page_files", "viridis.hex").read_text("ascii")
    colours = np.frombuffer(bytes.fromhex(text), dtype=np.uint8).reshape(256, 3)
    return np.pad(colours, ((0, 0), (0, 1)), constant_values=255)


def scale_colour(value: float) -> str:
    """Return the colour of a value between 0 and 1 as HTML writes it.

    >>> scale_colour(0.0)
    '#440154'
    """
    return "#" + scale_colours([value])[0, :3].tobytes().hex()
