"""Search a space for the point with the highest score: a grid, or Optuna."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from deepccg.core import InputError
from deepccg.tune.space import Axis, Choice, Point, grid_points

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

# Returns the score of each point, higher is better; None for a point that failed.
Score: TypeAlias = Callable[[Sequence[Point]], Sequence[float | None]]

MAX_POINTS = 10_000
SAMPLER_SEED = 0


def grid_search(axes: Sequence[Axis], score: Score) -> list[Point]:
    """Score every combination, all at once; returns the points in order."""
    size = math.prod(len(axis.values) for axis in axes)
    if size > MAX_POINTS:
        raise InputError(f"the grid has {size:,} points; at most {MAX_POINTS:,} are possible")
    points = list(grid_points(axes))
    score(points)
    return points


def optuna_search(
    axes: Sequence[Axis], score: Score, trials: int, together: int = 1
) -> list[Point]:
    """Score points that Optuna's tree-structured Parzen estimator suggests; returns them in order.

    The same scores give the same suggestions. So an interrupted search is repeated from its
    beginning, which costs nothing where ``score`` reads finished runs back.

    Args:
        axes: The space.
        score: Scores points.
        trials: How many points.
        together: How many are suggested at a time: more use more processors, each less informed.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise InputError(
            "--search optuna needs Optuna: pip install 'deepccg[tune]', or use --search grid"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=SAMPLER_SEED, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    space = {axis.field: _distribution(axis) for axis in axes}
    found: list[Point] = []
    while len(found) < trials:
        asked = [study.ask(space) for _ in range(min(together, trials - len(found)))]
        points = [_point(axes, trial.params) for trial in asked]
        for trial, value in zip(asked, score(points), strict=True):
            if value is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, value)
        found += points
    return found


def _distribution(axis: Axis) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(axis, Choice):
        return CategoricalDistribution(axis.values)
    if axis.kind == "int":
        return IntDistribution(round(axis.low), round(axis.high))
    return FloatDistribution(axis.low, axis.high, log=axis.kind == "log")


def _point(axes: Sequence[Axis], params: Point) -> Point:
    return {
        axis.field: params[axis.field]
        if isinstance(axis, Choice)
        else axis.rounded(params[axis.field])
        for axis in axes
    }
