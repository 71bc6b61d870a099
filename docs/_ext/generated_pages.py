"""Parts of pages that are made from the code: ``<!-- generated: KIND NAME -->`` is replaced.

On GitHub such a comment is invisible; on the site it is an API reference, the options of the
command line, the fields of a configuration, or a file of the repository's root as a page.
"""

import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import typer
import typer.cli
from api_reference import is_foreign, package_api, plain_types, public_api
from pydantic import BaseModel
from sphinx.application import Sphinx

from deepccg.cli import app as program
from deepccg.learners.recipe import RecipeConfig
from deepccg.methods import METHODS

ROOT = Path(__file__).parents[2]
MARKER = re.compile(r"<!-- generated: (\w+) ?([\w.]*) -->")


def command_line(_: str = "") -> str:
    """Return every command with its options, as its help has them."""
    command = typer.main.get_command(program)
    text = typer.cli.get_docs_for_click(obj=command, ctx=typer.Context(command), name="deepccg")
    for name, each in command.commands.items():  # the list of commands cuts their lines short
        line = each.get_short_help_str(limit=200)
        text = re.sub(
            rf"^\* `{name}`: .*", f"* [`{name}`](#deepccg-{name}): {line}", text, flags=re.MULTILINE
        )
    _title, *rest = text.splitlines()  # the page has its own
    return "\n".join(rest)


def fields(path: str) -> str:
    """Return the table of a configuration, such as ``experiment.RunConfig``.

    >>> print(fields("experiment.config.EvaluationConfig").splitlines()[2])
    | `every` | `'task'` | at the end, after every task, or every N batches |
    """
    home, _, name = path.rpartition(".")
    config = getattr(importlib.import_module(f"deepccg.{home}"), name)
    return _table(config, config.model_fields)


def method_fields(_: str = "") -> str:
    """Return the fields of every method; those that methods with replay share are left out."""
    shared = RecipeConfig().chosen()
    parts = []
    for name, method in METHODS.items():
        own = [field for field in method.Config.model_fields if field not in shared]
        table = _table(method.Config, own) if own else "It has no fields of its own."
        parts += [f"### `{name}`", (method.__doc__ or "").splitlines()[0], table]
    return "\n\n".join(parts)


def _table(config: type[BaseModel], names: Iterable[str]) -> str:
    rows = ["| field | default | meaning |", "|---|---|---|"]
    for name in names:
        field = config.model_fields[name]
        if not isinstance(field.default, BaseModel):  # that has a table of its own
            meaning = (field.description or "").replace("|", r"\|")
            rows.append(f"| `{name}` | `{field.get_default()!r}` | {meaning} |")
    return "\n".join(rows)


def root_file(name: str) -> str:
    """Return a Markdown file of the repository's root with its links as seen from ``docs``."""
    text = (ROOT / name).read_text(encoding="utf-8")
    outside = re.sub(r"\]\((?!https?:|#|docs/)([^)]+)\)", r"](../\1)", text)
    return outside.replace("](docs/", "](")


def recipe_fields(_: str = "") -> str:
    """Return the fields that every method with replay has."""
    return _table(RecipeConfig, RecipeConfig().chosen())


KINDS: dict[str, Callable[[str], str]] = {
    "api": public_api,
    "package": package_api,
    "commands": command_line,
    "fields": fields,
    "methods": method_fields,
    "recipe": recipe_fields,
    "file": root_file,
}
PAGES = {"../CONTRIBUTING.md": "contributing.md", "../CHANGELOG.md": "changelog.md"}


def fill_in(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Replace the markers of a page, and point links to files that are pages at these."""
    text = MARKER.sub(lambda match: KINDS[match[1]](match[2]), source[0])
    for path, page in PAGES.items():
        text = text.replace(f"]({path}", f"]({page}")
    source[0] = re.sub(r"^[\w/]+\*\n", _unless_empty, text, flags=re.MULTILINE)


def _unless_empty(pattern: re.Match[str]) -> str:
    """Return a pattern of a table of contents if there is a page for it."""
    return pattern[0] if any((ROOT / "docs").glob(pattern[0].strip())) else ""


def _skip(_app: Sphinx, _what: str, _name: str, member: object, *_further: object) -> bool | None:
    return is_foreign(member) or None  # None: as usual


def _sign(
    _app: Sphinx, _what: str, _name: str, _value: object, _options: object, *signature: str | None
) -> tuple[str | None, ...] | None:
    if not any("Annotated[" in (part or "") for part in signature):
        return None  # as usual
    return tuple(part and plain_types(part) for part in signature)


def setup(app: Sphinx) -> dict[str, bool]:
    """Fill in pages when they are read."""
    app.connect("source-read", fill_in)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _sign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
