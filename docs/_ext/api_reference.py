"""The API reference: directives that document names by their docstrings."""

import importlib
import inspect
import re
from pathlib import Path

import deepccg


def public_names(package: str) -> list[str]:
    """Return what ``deepccg`` itself offers from a subpackage.

    >>> public_names("evaluation")
    ['evaluate']
    """
    return [name for name, home in deepccg._HOME.items() if home.split(".")[1] == package]


def further_names(package: str) -> list[str]:
    """Return what a subpackage offers beside its public names, without what it only imports.

    >>> "brier_score" in further_names("evaluation"), "evaluate" in further_names("evaluation")
    (True, False)
    """
    module = importlib.import_module(f"deepccg.{package}")
    homes = module.__name__, "typing", "types"  # the last two: of aliases
    return [
        name
        for name in module.__all__
        if name not in public_names(package)
        and not inspect.ismodule(value := getattr(module, name))
        and getattr(value, "__module__", module.__name__).startswith(homes)
    ]


def public_api(package: str) -> str:
    """Return the reference of a subpackage's public names."""
    # Other classes inherit from public ones, which are documented themselves.
    options = ["   :inherited-members:"] if package == "estimator" else []
    return _autodoc([f"deepccg.{name}" for name in public_names(package)], *options)


def package_api(package: str) -> str:
    """Return the reference of everything else that a subpackage offers."""
    public = ", ".join(f"{{py:obj}}`deepccg.{name}`" for name in public_names(package))
    also = f"In [the public API](../api.md): {public}.\n\n" if public else ""
    return also + _autodoc([f"deepccg.{package}.{name}" for name in further_names(package)])


def constant_text(home: str, name: str) -> str:
    """Return what the comment above or behind a constant's definition says.

    >>> constant_text("deepccg.streams", "SCHEDULES")
    'The streams by the name that `deepccg run --stream` takes.'
    """
    defined = re.compile(
        rf"^((?:#[^\n]*\n)*){name}\b[^=\n]*=(?!=)[^#\n]*(?:# *([^\n]*))?$", re.MULTILINE
    )
    folder = Path(importlib.import_module(home).__file__ or "").parent
    for path in sorted(folder.glob("*.py")):
        if found := defined.search(path.read_text(encoding="utf-8")):
            above = " ".join(line.lstrip("#: ") for line in found[1].splitlines())
            return above or found[2] or ""
    return ""


def _autodoc(paths: list[str], *options: str) -> str:
    lines = ["```{eval-rst}"]
    for path in paths:
        home, _, name = path.rpartition(".")
        value = getattr(importlib.import_module(home), name)
        if inspect.isclass(value):
            lines += [f".. autoclass:: {path}", "   :members:", *options]
        elif inspect.isroutine(value):
            lines += [f".. autofunction:: {path}"]
        else:
            home = deepccg._HOME[name] if home == "deepccg" else home
            lines += [f".. py:data:: {path}", "", f"   {constant_text(home, name)}"]
        lines += [""]
    return "\n".join([*lines, "```"])


def is_foreign(member: object) -> bool:
    """Whether a class has it from another package, where it is documented.

    >>> is_foreign(deepccg.CCGClassifier.get_params), is_foreign(deepccg.CCGClassifier.save)
    (True, False)
    """
    function = getattr(member, "fget", member)
    return not (getattr(function, "__module__", None) or "deepccg").startswith("deepccg")


def plain_types(signature: str) -> str:
    """Return a signature with the types alone, without the bounds that are checked.

    >>> plain_types("(n: Annotated[int, Field(ge=0, le=f[9])] | None, x: float = 1.0)")
    '(n: int | None, x: float = 1.0)'
    """
    while (start := signature.find("Annotated[")) >= 0:
        depth, parts = 0, [start + len("Annotated[")]
        for end in range(parts[0], len(signature)):
            character = signature[end]
            if depth == 0 and character in ",]":
                parts.append(end)
                if character == "]":
                    break
            depth += (character in "([") - (character in ")]")
        signature = signature[:start] + signature[parts[0] : parts[1]] + signature[end + 1 :]
    return signature
