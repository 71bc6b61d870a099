"""What the code of a learner names: the globals of its functions, not those of libraries."""

import builtins
import dis
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from deepccg.core import Learner

SHARED = {"deepccg", "numpy", "torch", *sys.stdlib_module_names}  # what every learner uses
_LIBRARIES = {"dist-packages", "site-packages"}  # where libraries are installed
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"}


class OwnCode:
    """Tells a learner's own modules from libraries: those of its classes, and those not installed.

    Only own functions are read for the globals that they name. Libraries name too many, and every
    learner shares them.
    """

    def __init__(self, kind: type) -> None:
        self._roots = {root_module(each) for each in kind.__mro__ if issubclass(each, Learner)}
        self._known: dict[str, bool] = {}

    def __contains__(self, module: object) -> bool:
        """Whether the module of this name is the learner's own."""
        root = str(module).partition(".")[0]
        if root not in self._known:
            self._known[root] = root not in SHARED and (root in self._roots or not _installed(root))
        return self._known[root]

    def named_by(self, function: FunctionType) -> Iterator[tuple[str, object]]:
        """Yield name and value of each global, also of other modules, that a function names."""
        space = function.__globals__
        module = space.get("__name__", "")
        if module not in self:
            return
        for first, *rest in _chains(function.__code__):
            value, name = space.get(first, vars(builtins).get(first)), first
            for attribute in rest:
                if issubclass(type(value), ModuleType):
                    value, name = vars(value).get(attribute), f"{name}.{attribute}"
            yield f"{module}.{name}", value


def root_module(kind: type) -> str:
    """Return the name of the package that a class is of."""
    return str(kind.__module__).partition(".")[0]  # no text for some compiled classes


def _installed(root: str) -> bool:
    module = sys.modules.get(root)
    if root == "__main__" or module is None:
        return False
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    parts = {part for place in places if place for part in Path(place).parts}
    return not parts or not parts.isdisjoint(_LIBRARIES)


@lru_cache(maxsize=4096)
def _chains(code: CodeType) -> frozenset[tuple[str, ...]]:
    """Return what the code, and code within it, names: ``module.list.append`` as three words."""
    found: set[tuple[str, ...]] = set()
    chain: list[str] = []
    for instruction in dis.get_instructions(code):
        value: Any = instruction.argval
        if chain and instruction.opname in _ATTRIBUTE:
            chain.append(value)
            continue
        if chain:
            found.add(tuple(chain))
        chain = [value] if instruction.opname in _GLOBAL else []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _chains(constant)
    return frozenset(found)
