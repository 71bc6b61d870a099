"""Where on this machine things are kept that can be made again."""

import os
from pathlib import Path


def default_cache_dir() -> Path:
    """``$DEEPCCG_CACHE``, or ``deepccg`` in the user's cache directory."""
    if os.environ.get("DEEPCCG_CACHE"):
        return Path(os.environ["DEEPCCG_CACHE"]).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deepccg"
