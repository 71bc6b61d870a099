"""What a search found, as a preset file and as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from deepccg.core import InputError
from deepccg.experiment import nested
from deepccg.tune.tune import KEYS, Trial, Tuned


def preset_text(found: Sequence[Tuned], command: str) -> str:
    """A file for ``run --preset``: a rule for each search, its trials above it as comments.

    Args:
        found: The searches; each must have a trial that worked.
        command: How they were made.
    """
    parts = [
        f"# Written by: {command}\n"
        f"# Percent, on held-out training data, mean +- standard error over seeds; *: chosen.\n"
    ]
    for tuned in found:
        best = tuned.best
        if best is None:
            raise InputError(f"every trial failed, the first with: {tuned.trials[0].errors[0]}")
        lines = [_line(trial, best) for trial in tuned.trials]
        table = "\n".join(f"# {line}" for line in lines)
        parts.append(f"{table}\n{tomli_w.dumps({'rule': [_rule(tuned.settings, best)]})}")
    return "\n".join(parts)


def trials_json(found: Sequence[Tuned], command: str) -> str:
    """Every trial with all its scores."""
    searches = [
        {
            "settings": dict(tuned.settings),
            "best": None if tuned.best is None else dict(tuned.best.point),
            "trials": [
                {
                    "point": dict(trial.point),
                    "mean": trial.accuracy.mean if trial.accuracy else None,
                    "scores": {str(seed): score for seed, score in trial.scores.items()},
                    "errors": list(trial.errors),
                }
                for trial in tuned.trials
            ],
        }
        for tuned in found
    ]
    return json.dumps({"command": command, "searches": searches}, indent=2) + "\n"


def point_text(trial: Trial) -> str:
    """The values that were tried.

    >>> point_text(Trial({"method.strength": 1.0, "method.lr": 0.1}, {}))
    'strength = 1.0, lr = 0.1'
    """
    return ", ".join(f"{k.removeprefix('method.')} = {v}" for k, v in trial.point.items())


def _line(trial: Trial, best: Trial) -> str:
    accuracy = trial.accuracy
    if accuracy is None:
        told = f"failed: {trial.errors[0]}"
    else:
        error = accuracy.standard_error
        told = f"{100 * accuracy.mean:.2f}" + (f" +- {100 * error:.2f}" if error else "")
    plain = " ".join("".join(c if c.isprintable() else " " for c in told).split())
    return f"{'*' if trial is best else ' '} {point_text(trial)}: {plain}"


def _rule(settings: Mapping[str, Any], best: Trial) -> dict[str, Any]:
    """Applies where the search was made; sets what all its runs had and what it chose."""
    named = {key: settings[field] for key, field in KEYS.items() if field in settings}
    own = {field: value for field, value in settings.items() if field not in KEYS.values()}
    return {**named, "set": nested({**own, **best.point})}
