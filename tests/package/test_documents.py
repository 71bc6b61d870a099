"""Documents name files and commands that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = [ROOT, ROOT / "src", ROOT / "src" / "deepccg", ROOT / "benchmarks", ROOT / "docs"]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_a_document_names_exist(document):
    named = re.findall(r"`([\w./]*/\w+\.(?:py|cpp|h|json|toml))\b", document.read_text())
    named += re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", document.read_text())
    users_own = ("runs/", "my_package/")
    missing = [
        name
        for name in named
        if not name.startswith(users_own)
        and not any((place / name).exists() for place in (*PLACES, document.parent))
    ]
    assert not missing


def test_the_vocabulary_is_short_and_names_its_places():
    rows = re.findall(
        r"^\| (?!word|---)(.+) \|$", (ROOT / "docs" / "vocabulary.md").read_text(), re.MULTILINE
    )
    assert 0 < len(rows) <= 40
    places = [re.search(r"`([^`]+)`$", row)[1] for row in rows]
    assert [p for p in places if not any((place / p).exists() for place in PLACES)] == []


def test_the_demo_in_the_documents_is_the_one_that_is_made_and_described():
    page = (ROOT / "docs" / "_static" / "demo.html").read_text()
    files = ROOT / "src" / "deepccg" / "report" / "page_files"
    for name in ("demo.css", "demo.js"):
        assert (files / name).read_text().strip() in page, "run `make figures`"
    said = re.search(r"step before would have (\d+)\\u00a0% right .* it has (\d+)\\u00a0%", page)
    for document in (ROOT / "README.md", ROOT / "docs" / "how_it_works.md"):
        text = " ".join(document.read_text().split())
        assert re.search(rf"{said[1]} %.{{,120}}{said[2]} %", text), "the demo's numbers changed"
