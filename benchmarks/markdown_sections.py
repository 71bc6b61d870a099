"""Generated sections of a Markdown page that is otherwise written by hand."""

import re
from collections.abc import Mapping
from pathlib import Path


def fill_sections(page: Path, sections: Mapping[str, str]) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- / -->`` for each name."""
    text = page.read_text(encoding="utf-8")
    for name, section in sections.items():
        marked = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- / -->)", re.DOTALL)
        text = marked.sub(lambda match, section=section: f"{match[1]}{section}\n{match[2]}", text)
    page.write_text(text, encoding="utf-8")
