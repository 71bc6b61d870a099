"""What a misspelled name was probably meant to be."""

import difflib
from collections.abc import Iterable


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like ``name``, if one is.

    A dotted name is also known by its last part: people forget the table that a field is in.

    >>> closest("lr", ["seed", "method.lr"])
    'method.lr'
    """
    names = list(known)
    by_part = {each.rpartition(".")[2]: each for each in reversed(names)}
    if name in by_part:
        return by_part[name]
    whole = difflib.get_close_matches(name, names, n=1)
    part = difflib.get_close_matches(name, by_part, n=1)
    return whole[0] if whole else by_part[part[0]] if part else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the closest name as a hint for the end of a phrase; nothing if there is none.

    >>> "unknown method 'depccg'" + did_you_mean("depccg", ["deepccg", "er"])
    "unknown method 'depccg' (did you mean deepccg?)"
    >>> did_you_mean("owl", ["deepccg", "er"])
    ''
    """
    close = closest(name, known)
    return f" (did you mean {close}?)" if close else ""
