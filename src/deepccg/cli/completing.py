"""Deprecated: use ``deepccg.report.assemble``."""

import warnings

from deepccg.report import Run
from deepccg.report.assemble import with_current_defaults


def completed(run: Run) -> Run:
    """Deprecated name of ``deepccg.report.assemble.with_current_defaults``."""
    new = "deepccg.report.assemble.with_current_defaults"
    warnings.warn(f"completed is now {new}", DeprecationWarning, stacklevel=2)
    return with_current_defaults(run)
