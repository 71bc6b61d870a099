"""Seeds as people write them."""

from deepccg.core import InputError

MOST_SEEDS = 10_000


def parse_seeds(text: str, name: str = "--seeds") -> list[int]:
    """The numbers of ``0``, ``0-2`` or ``0,3,5-7``, each once.

    Args:
        text: What was written.
        name: What messages call it.

    >>> parse_seeds("0,3,5-7,3")
    [0, 3, 5, 6, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"{name} {text}: write for example 0, 0-2 or 0,3,5")
        if max(len(first), len(last)) > 18:
            raise InputError(f"{name} {text}: seeds have at most 18 digits")
        named = range(int(first), int(last if dash else first) + 1)
        if len(seeds) + len(named) > MOST_SEEDS:
            raise InputError(f"{name} {text} names more than {MOST_SEEDS:,} seeds")
        seeds += named
    if not seeds:
        raise InputError(f"{name} {text} names no seed")
    return list(dict.fromkeys(seeds))
