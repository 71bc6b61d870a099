"""Results of searches as a preset file and as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from deepccg.core import InputError
from deepccg.experiment import nested
from deepccg.tune.tune import RULE_KEYS, Trial, Tuned


def preset_text(found: Sequence[Tuned], command: str) -> str:
    """Return a file for ``run --preset``: a rule for each search, below its trials as comments.

    Each search must have a trial that did not fail; ``command`` is what was typed for them.
    """
    parts = [
        f"# Written by: {command}\n"
        f"# Percent, on held-out training data, mean +- standard error over seeds; *: chosen.\n"
    ]
    for tuned in found:
        best = tuned.best
        if best is None:
            raise InputError(f"every trial failed, the first with: {tuned.trials[0].errors[0]}")
        table = "\n".join(f"# {_line(trial, best)}" for trial in tuned.trials)
        parts.append(f"{table}\n{tomli_w.dumps({'rule': [_rule(tuned.settings, best)]})}")
    return "\n".join(parts)


def trials_json(found: Sequence[Tuned], command: str) -> str:
    """Return every trial with all its scores."""
    searches = [
        {
            "settings": tuned.settings,
            "best": tuned.best.point if tuned.best else None,
            "trials": [
                {"point": t.point, "mean": t.mean, "scores": t.scores, "errors": t.errors}
                for t in tuned.trials
            ],
        }
        for tuned in found
    ]
    return json.dumps({"command": command, "searches": searches}, indent=2) + "\n"


def point_text(trial: Trial) -> str:
    """Return the values of a trial.

    >>> point_text(Trial({"method.strength": 1.0, "method.lr": 0.1}, {}))
    'strength = 1.0, lr = 0.1'
    """
    return ", ".join(f"{k.removeprefix('method.')} = {v}" for k, v in trial.point.items())


def _line(trial: Trial, best: Trial) -> str:
    accuracy = trial.accuracy
    if accuracy is None:
        text = f"failed: {trial.errors[0]}"
    else:
        error = accuracy.standard_error
        text = f"{100 * accuracy.mean:.2f}" + (f" +- {100 * error:.2f}" if error else "")
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return f"{'*' if trial is best else ' '} {point_text(trial)}: {plain}"


def _rule(settings: Mapping[str, Any], best: Trial) -> dict[str, Any]:
    """Return a rule that matches the search, and sets what its runs shared and what it chose."""
    match = {key: settings[field] for key, field in RULE_KEYS.items() if field in settings}
    shared = {field: value for field, value in settings.items() if field not in RULE_KEYS.values()}
    return {**match, "set": nested({**shared, **best.point})}
