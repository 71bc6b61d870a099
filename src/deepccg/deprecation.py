"""Old names that still work for one release, each with a ``DeprecationWarning`` naming the new one.

To be removed in version 0.3, together with every use of this module.
"""

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Modules that docs named before they moved.
MOVED_MODULES = {
    "deepccg.cli.completing": "deepccg.report.assemble",
    "deepccg.methods.base": "deepccg.learners.base",
    "deepccg.methods.head": "deepccg.learners.heads",
    "deepccg.methods.outputs": "deepccg.learners.class_table",
    "deepccg.methods.replay": "deepccg.memory.buffer",
}


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Say that ``old`` is called ``new`` now."""
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=stacklevel)


def renamed_hooks(cls: type, renamed: Mapping[str, str]) -> None:
    """Let a class define or call methods by their old names.

    A method that the class defines under its old name takes the new one, so that the base class
    calls it; one that it defines under the new name can be called by the old one, also through
    ``super()``.

    Args:
        cls: The class, just made.
        renamed: Old name -> new name.
    """
    for old, new in renamed.items():
        if old in vars(cls):
            warn_renamed(f"{cls.__name__}.{old}", new, stacklevel=5)
            setattr(cls, new, vars(cls)[old])
        elif new in vars(cls):
            setattr(cls, old, _calling_by_old_name(old, new, vars(cls)[new]))


def _calling_by_old_name(old: str, new: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(*args: Any, **fields: Any) -> Any:
        warn_renamed(f"{old}()", f"{new}()")
        return method(*args, **fields)

    return called


class _MovedModules(MetaPathFinder, Loader):
    """Imports a module under the name it had before it moved."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(fullname, self) if fullname in MOVED_MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        new = MOVED_MODULES[module.__name__]
        warn_renamed(module.__name__, new, stacklevel=2)
        found = vars(importlib.import_module(new))
        vars(module).update({name: found[name] for name in found if not name.startswith("__")})


def install_moved_modules() -> None:
    """Make ``MOVED_MODULES`` importable."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
