"""What a row's directories do not say themselves."""

from collections.abc import Mapping
from dataclasses import dataclass

from deepccg.report.gallery import Stored
from deepccg.report.settings import Setting


@dataclass(frozen=True)
class About:
    """What a row's directories do not say themselves.

    Args:
        command: What to type to get the row again.
        protocols: The audit of each run in one line, by seed.
        stored: What the first seed's memory holds, or why that is not known.
    """

    command: str
    protocols: Mapping[int, str]
    stored: Stored | str


def class_names(setting: Setting, about: Mapping[str, About]) -> dict[int, str]:
    """By label, as far as some memory of the setting tells them."""
    for row in setting.rows:
        if isinstance(stored := about[row.key].stored, Stored):
            return dict(enumerate(stored.names))
    return {}
