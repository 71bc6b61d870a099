"""Choose fields by the accuracy on held-out training data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

from deepccg.core import CannotWrite, InputError, ProtocolViolation
from deepccg.experiment import resolve
from deepccg.records import Estimate, RunDirectory, estimate, summary
from deepccg.sweep import Job, Outcome
from deepccg.tune.search import Axis, Point, grid_search, optuna_search

RunAll: TypeAlias = Callable[[list[Job]], list[Outcome]]

# The keys of a preset's rule, and the setting that each is compared with.
RULE_KEYS = {
    "method": "method.name",
    "dataset": "dataset",
    "stream": "stream.kind",
    "scenario": "scenario",
}

# Why --set cannot fix a field: a rule could not match the runs of the search, or not set it.
_NOT_FIXED = {
    "method": "use --method",
    "method.name": "use --method",
    "dataset": "use --dataset",
    "stream": "use --stream",
    "stream.kind": "use --stream",
    "scenario": "use --scenario",
    "seed": "use --seeds",
    "evaluation.validation": "use --validation",
    "preset": "a tuned preset extends the default one; name the fields themselves",
}
_SCORING = "a search scores its runs at their end on the training data that --validation holds out"

# A search cannot choose these: they define what it is about.
_NOT_SEARCHED = ("dataset", "stream", "scenario", "method", "preset", "seed", "seeds", "evaluation")
_NOT_SEARCHED_BELOW = ("evaluation.", "method.name", "stream.kind", "stream.joint", "stream.epochs")


@dataclass(frozen=True)
class Trial:
    """A point with the held-out accuracy of each seed's run, a fraction; or why runs have none."""

    point: Point
    scores: Mapping[int, float]
    errors: tuple[str, ...] = ()

    @property
    def accuracy(self) -> Estimate | None:
        """Over the seeds; ``None`` if a run failed: then the point cannot be chosen."""
        return None if self.errors else estimate(list(self.scores.values()))

    @property
    def mean(self) -> float | None:
        """The mean accuracy; ``None`` if a run failed."""
        return self.accuracy.mean if self.accuracy else None


@dataclass(frozen=True)
class Tuned:
    """The result of a search: what all runs had in common, and the trials in order."""

    settings: Mapping[str, Any]
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The trial with the highest mean, the first of equals; ``None`` if every one failed."""
        known = [(mean, trial) for trial in self.trials if (mean := trial.mean) is not None]
        return max(known, key=itemgetter(0))[1] if known else None


def tune(
    settings: Mapping[str, Any],
    axes: Sequence[Axis],
    run_all: RunAll,
    *,
    seeds: Sequence[int],
    validation: float = 0.1,
    search: str = "grid",
    trials: int | None = None,
    together: int = 1,
) -> Tuned:
    """Try points of a space, each scored on training data that its runs did not learn from.

    The test part of the data set is never opened; a run that opened it raises
    ``ProtocolViolation``. A full disk, or a run directory in use, ends the search with
    ``CannotWrite``: a point is not to blame for that.

    Args:
        settings: What all runs have in common, as for ``resolve``, with dotted names; without
            preset, seed and anything about scoring.
        axes: What may be chosen.
        run_all: Does the runs, as ``run_jobs``, and reads finished ones back.
        seeds: A point's score is the mean over these.
        validation: The fraction of the training data that is held out.
        search: ``grid``: every combination; ``optuna``: ``trials`` suggestions.
        trials: How many points ``optuna`` tries.
        together: How many it suggests at a time.
    """
    if not axes:
        raise InputError("there is nothing to choose: name fields with --space")
    if search not in ("grid", "optuna"):
        raise InputError(f"--search {search}: choose grid or optuna")
    check_settings(settings)
    fixed = {**settings, "evaluation.validation": validation, "evaluation.every": "end"}
    _check_axes(axes, fixed)
    done: dict[str, Trial] = {}

    def score(points: Sequence[Point]) -> list[float | None]:
        new = [point for point in points if repr(point) not in done]
        jobs = [Job(resolve({**fixed, **point}), seed) for point in new for seed in seeds]
        outcomes = iter(run_all(jobs) if jobs else [])
        for point in new:
            done[repr(point)] = _trial(point, [next(outcomes) for _ in seeds])
        return [done[repr(point)].mean for point in points]

    if search == "grid":
        points = grid_search(axes, score)
    else:
        if trials is None or trials < 1:
            raise InputError("--search optuna needs --trials, a number of at least 1")
        points = optuna_search(axes, score, trials, together)
    return Tuned(settings, tuple(done[key] for key in dict.fromkeys(map(repr, points))))


def check_settings(settings: Mapping[str, Any]) -> None:
    """Reject what the runs of a search cannot have in common, before any of them starts."""
    check_fixed(field for field in settings if field not in RULE_KEYS.values())
    if settings.get("stream.kind") == "joint":
        raise InputError(
            "a preset does not distinguish the streams joint and disjoint: "
            "use --stream disjoint --set stream.joint=tasks"
        )
    resolve(settings)


def check_fixed(fields: Iterable[str]) -> None:
    """Reject fields that ``--set`` cannot fix for all runs of a search."""
    for field in fields:
        scoring = field.partition(".")[0] == "evaluation"
        if why := _NOT_FIXED.get(field, _SCORING if scoring else None):
            raise InputError(f"{field} cannot be fixed with --set: {why}")


def _check_axes(axes: Sequence[Axis], fixed: Mapping[str, Any]) -> None:
    """Reject fields and values that no run accepts, before any run starts."""
    names = [axis.field for axis in axes]
    for name in names:
        if name in _NOT_SEARCHED or name.startswith(_NOT_SEARCHED_BELOW):
            raise InputError(f"{name} cannot be searched: it defines what is compared")
        if names.count(name) > 1 or name in fixed:
            raise InputError(f"{name} is given twice")
    first = {axis.field: axis.ends[0] for axis in axes}
    for axis in axes:
        for value in axis.ends:
            resolve({**fixed, **first, axis.field: value})


def _trial(point: Point, outcomes: Sequence[Outcome]) -> Trial:
    scores, errors = {}, []
    for outcome in outcomes:
        if outcome.unrelated:
            raise CannotWrite(
                f"{outcome.error}. The search stopped, as that says nothing about "
                f"{dict(point)}: then the same command continues"
            )
        if outcome.status == "failed":
            errors.append(f"seed {outcome.job.seed}: {outcome.error}")
            continue
        target = RunDirectory(outcome.directory)
        _check_test_unopened(target)
        metric = f"{outcome.job.config.scenario}_accuracy"
        value = summary(target.evaluations())[metric]
        if value is None:
            errors.append(f"seed {outcome.job.seed}: it has no {metric}")
        else:
            scores[outcome.job.seed] = value
    return Trial(point, scores, tuple(errors))


def _check_test_unopened(target: RunDirectory) -> None:
    """Reject a run unless the auditor, not only its configuration, says the test part was shut."""
    match target.audit():
        case {"test": {"opened": False}}:
            return
        case {"test": {"opened": _}}:
            reason = "opened the test part: it cannot be used to choose"
        case _:
            reason = "was not audited: remove it"
    raise ProtocolViolation(f"{target.path} {reason}")
