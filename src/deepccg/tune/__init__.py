"""Choosing a method's fields on held-out training data."""

from deepccg.tune.preset import point_text, preset_text, trials_json
from deepccg.tune.search import Choice, Range, parse_axis
from deepccg.tune.tune import Trial, Tuned, check_fixed, check_settings, tune

__all__ = [
    "Choice",
    "Range",
    "Trial",
    "Tuned",
    "check_fixed",
    "check_settings",
    "parse_axis",
    "point_text",
    "preset_text",
    "trials_json",
    "tune",
]
