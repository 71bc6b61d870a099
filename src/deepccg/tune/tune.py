"""Choosing fields by the accuracy on held-out training data."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from deepccg.core import InputError, ProtocolViolation
from deepccg.experiment import resolve
from deepccg.records import Estimate, RunDirectory, estimate, summary
from deepccg.sweep import Job, Outcome
from deepccg.tune.search import by_grid, by_optuna
from deepccg.tune.space import Axis, Point

# What a rule is for, and the setting that it is compared with.
KEYS = {
    "method": "method.name",
    "dataset": "dataset",
    "stream": "stream.kind",
    "scenario": "scenario",
}

# A rule would not match the runs of the search, or would not set what they had.
_OPTIONS = {
    "method": "--method",
    "method.name": "--method",
    "dataset": "--dataset",
    "stream": "--stream",
    "stream.kind": "--stream",
    "scenario": "--scenario",
    "seed": "--seeds",
    "evaluation.validation": "--validation",
}


def check_fixed(fields: Iterable[str]) -> None:
    """Refuse fields that all runs of a search cannot be given by ``--set``."""
    for field in fields:
        if field in _OPTIONS:
            raise InputError(f"{field} cannot be fixed with --set: use {_OPTIONS[field]}")
        if field.partition(".")[0] == "evaluation":
            raise InputError(
                f"{field} cannot be fixed with --set: a search scores its runs at their end on "
                f"the training data that --validation holds out"
            )
        if field == "preset":
            raise InputError(
                "preset cannot be fixed with --set: a tuned preset stands on the default one; "
                "name the fields themselves"
            )


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse what all runs of a search cannot have in common, before any is begun."""
    check_fixed(field for field in settings if field not in KEYS.values())
    if settings.get("stream.kind") == "joint":
        raise InputError(
            "a preset does not tell the stream joint from disjoint: "
            "use --stream disjoint --set stream.joint=tasks"
        )
    resolve(settings)


Search: TypeAlias = Literal["grid", "optuna"]
RunAll: TypeAlias = Callable[[list[Job]], list[Outcome]]

# What a search cannot choose: it is asked of a given question.
_GIVEN = ("dataset", "stream", "scenario", "method", "preset", "seed", "seeds", "evaluation")
_GIVEN_WITHIN = ("evaluation.", "method.name", "stream.kind", "stream.joint", "stream.epochs")


@dataclass(frozen=True)
class Trial:
    """A point and what it scored.

    Args:
        point: The value of each field.
        scores: The accuracy on held-out data of each seed's run, a fraction.
        errors: Why runs gave no score, one line each.
    """

    point: Point
    scores: Mapping[int, float]
    errors: tuple[str, ...] = ()

    @property
    def accuracy(self) -> Estimate | None:
        """Over the seeds; ``None`` if a run failed: then the point does not work."""
        return None if self.errors else estimate(list(self.scores.values()))


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Args:
        settings: What all runs had in common.
        trials: Every point, in the order in which they were tried.
    """

    settings: Mapping[str, Any]
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The trial with the highest mean, the first of equals; ``None`` if every one failed."""
        known = [trial for trial in self.trials if trial.accuracy is not None]
        return max(known, key=_mean, default=None)  # max takes the first of equals


def tune(
    settings: Mapping[str, Any],
    axes: Sequence[Axis],
    run_all: RunAll,
    *,
    seeds: Sequence[int],
    validation: float = 0.1,
    search: Search = "grid",
    trials: int | None = None,
    together: int = 1,
) -> Tuned:
    """Try points of a space; each is scored on training data that was held out of its runs.

    The test part of the data set is never opened: a run that did would be refused.

    Args:
        settings: What all runs have in common, as for ``resolve``; dotted names. Neither a preset
            nor a seed nor how runs are scored is among them.
        axes: What may be chosen.
        run_all: Does the runs, as ``run_jobs``; finished ones are to be read back.
        seeds: A point's score is the mean over these.
        validation: The share of the training data that is held out.
        search: ``grid``: every combination; ``optuna``: ``trials`` suggestions.
        trials: How many points ``optuna`` tries.
        together: How many it suggests at a time.
    """
    if not axes:
        raise InputError("there is nothing to choose: name fields with --space")
    check_settings(settings)
    fixed = {**settings, "evaluation.validation": validation, "evaluation.every": "end"}
    _check(fixed, axes)
    memo: dict[str, Trial] = {}

    def score(points: Sequence[Point]) -> list[float | None]:
        new = [point for point in points if repr(point) not in memo]
        jobs = [Job(resolve({**fixed, **point}), seed) for point in new for seed in seeds]
        outcomes = run_all(jobs) if jobs else []
        for place, point in enumerate(new):
            own = outcomes[place * len(seeds) : (place + 1) * len(seeds)]
            memo[repr(point)] = _trial(point, own)
        return [_mean_of(memo[repr(point)]) for point in points]

    if search == "grid":
        points = by_grid(axes, score)
    else:
        if trials is None or trials < 1:
            raise InputError("--search optuna needs --trials, a number of at least 1")
        points = by_optuna(axes, score, trials, together)
    return Tuned(settings, tuple(memo[key] for key in dict.fromkeys(map(repr, points))))


def _check(fixed: Mapping[str, Any], axes: Sequence[Axis]) -> None:
    """Refuse fields and values that no run takes, before any run is begun."""
    names = [axis.field for axis in axes]
    for name in names:
        if name in _GIVEN or name.startswith(_GIVEN_WITHIN):
            raise InputError(f"{name} cannot be searched: it is part of what is asked")
        if names.count(name) > 1 or name in fixed:
            raise InputError(f"{name} is given twice")
    first = {axis.field: axis.ends[0] for axis in axes}
    for axis in axes:
        for value in axis.ends:
            resolve({**fixed, **first, axis.field: value})


def _trial(point: Point, outcomes: Sequence[Outcome]) -> Trial:
    scores, errors = {}, []
    for outcome in outcomes:
        if outcome.status == "failed":
            errors.append(f"seed {outcome.job.seed}: {outcome.error}")
            continue
        target = RunDirectory(outcome.directory)
        _refuse_test_data(target)
        metric = f"{outcome.job.config.scenario}_accuracy"
        value = summary(target.evaluations())[metric]
        if value is None:
            errors.append(f"seed {outcome.job.seed}: it has no {metric}")
        else:
            scores[outcome.job.seed] = value
    return Trial(point, scores, tuple(errors))


def _refuse_test_data(target: RunDirectory) -> None:
    """The auditor watched whether the test part was opened; take its word, not the config's."""
    try:
        opened = json.loads(target.audit_path.read_text(encoding="utf-8"))["test"]["opened"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ProtocolViolation(f"{target.path} was not audited: remove it") from None
    if opened is not False:
        raise ProtocolViolation(f"{target.path} opened the test part: it chooses nothing")


def _mean_of(trial: Trial) -> float | None:
    return trial.accuracy.mean if trial.accuracy else None


def _mean(trial: Trial) -> float:
    value = _mean_of(trial)
    return float("-inf") if value is None else value
