"""Online continual learning with Deep Class-Conditional Gaussians (Lee & Storkey, AISTATS 2024).

``__init__.pyi`` lists the public names, for type checkers and for this file: each is imported when
it is first used, so that ``import deepccg`` costs nothing.
"""

import importlib
import re
from pathlib import Path
from typing import Any

from deepccg.deprecation import install_moved_modules

__version__ = "0.2.0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOME = {name: home for home, name in re.findall(r"from (\S+) import \w+ as (\w+)", _STUB)}
_NEED_EXTRAS = {"RiverCCGClassifier", "RiverClassifier"}
__all__ = sorted({*_HOME, "__version__"} - _NEED_EXTRAS)

install_moved_modules()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'deepccg' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOME})
