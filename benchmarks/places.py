"""Generated parts of a document that is otherwise written by hand."""

import re
from collections.abc import Mapping
from pathlib import Path


def fill_places(document: Path, parts: Mapping[str, str]) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- / -->`` for each part."""
    text = document.read_text(encoding="utf-8")
    for name, part in parts.items():
        place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- / -->)", re.DOTALL)
        text = place.sub(lambda match, part=part: f"{match[1]}{part}\n{match[2]}", text)
    document.write_text(text, encoding="utf-8")
