"""The site: every public name is documented, every link leads somewhere, and it builds."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from api_reference import constant_text, further_names, is_foreign, public_names
from generated_pages import KINDS, MARKER

import deepccg

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [DOCS / "index.md", *sorted(DOCS.glob("[!i]*.md")), *sorted(DOCS.glob("[!_]*/*.md"))]
DOCUMENTS = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")), *PAGES]
SUBPACKAGES = sorted(
    path.parent.name
    for path in (ROOT / "src" / "deepccg").glob("*/__init__.py")
    if "__all__" in path.read_text()
)


def undocumented(home: str, name: str) -> list[str]:
    """The name, if nothing is said of it, and its public members of which nothing is said."""
    value = getattr(importlib.import_module(home), name)
    if not inspect.isclass(value):
        text = value.__doc__ if inspect.isroutine(value) else constant_text(home, name)
        return [] if text else [f"{home}.{name}"]
    members = {"": value} | {
        f".{member}": found
        for member, found in vars(value).items()
        if not member.startswith("_") and (inspect.isroutine(found) or isinstance(found, property))
    }
    return [
        f"{home}.{name}{member}"
        for member, found in members.items()
        if not is_foreign(found) and not inspect.getdoc(getattr(value, member[1:], value))
    ]


@pytest.mark.parametrize("package", SUBPACKAGES)
def test_every_name_of_a_subpackage_is_documented_on_its_page(package: str) -> None:
    page = (DOCS / "api" / f"{package}.md").read_text()
    assert f"<!-- generated: package {package} -->" in page
    names = [(f"deepccg.{package}", name) for name in further_names(package)]
    names += [(deepccg._HOME[name], name) for name in public_names(package)]
    assert [lost for home, name in names for lost in undocumented(home, name)] == []


def test_every_public_name_is_on_the_page_of_the_public_api() -> None:
    packages = re.findall(r"<!-- generated: api (\w+) -->", (DOCS / "api.md").read_text())
    shown = [name for package in packages for name in public_names(package)]
    assert sorted(shown) == sorted(set(dir(deepccg)) & set(deepccg._HOME))
    assert set(deepccg.__all__) - {"__version__"} <= set(shown)


def test_a_name_without_documentation_is_found() -> None:
    assert undocumented("deepccg._HOME".rpartition(".")[0], "_HOME") == ["deepccg._HOME"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_markers_of_a_page_name_what_can_be_generated(page: Path) -> None:
    assert page.read_text().count("<!-- generated") == len(MARKER.findall(page.read_text()))
    assert {kind for kind, _ in MARKER.findall(page.read_text())} <= set(KINDS)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.+?) *$", prose, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return set(found)


def broken_links(document: Path, text: str) -> list[str]:
    """Links of a document to files that are not there, or to headings that these have not."""
    prose = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link in re.findall(r"\]\((?!\w+:)<?([^)\s>]+)", prose):
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        headed = target.suffix == ".md" and target.exists() and anchor
        if not target.exists() or (headed and anchor not in anchors(target.read_text())):
            broken.append(link)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    assert broken_links(document, document.read_text()) == []


def test_a_broken_link_is_found() -> None:
    text = "[a](start.md) [b](start.md#nowhere) [c](nothing.md) [d](https://example.org) `[e](f)`"
    assert broken_links(DOCS / "index.md", text) == ["start.md#nowhere", "nothing.md"]


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-E", "-b", "html"]
    done = subprocess.run([*command, DOCS, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {page.name for page in pages} >= {"index.html", "api.html", "search.html"}
    loads = re.compile(
        r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+stylesheet[^>]+//'
    )
    assert [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []
    assert "<dt" in (tmp_path / "api.html").read_text()
    assert "Annotated" not in (tmp_path / "api" / "records.html").read_text()
