"""All checks, and how they are run."""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from deepccg.core import Config, InputError, Learner
from deepccg.testing.check_batches import (
    columns_never_move,
    equal_tasks_are_one_task,
    images_are_learned,
    inputs_are_not_kept,
    inputs_are_not_modified,
    odd_batches_are_learned,
    open_task_is_learned,
    refuses_bad_batches,
)
from deepccg.testing.check_costs import (
    global_generators_are_not_touched,
    global_generators_do_not_matter,
    instances_share_nothing,
    memory_stays_within_budget,
    same_seed_same_trajectory,
    state_does_not_grow,
    step_cost_does_not_grow,
)
from deepccg.testing.check_predictions import (
    config_is_closed_and_documented,
    it_learns,
    predict_agrees_with_scores,
    predicting_changes_nothing,
    probabilities_are_proper,
    steps_tell_finite_scalars,
    uniform_before_learning,
    uniform_on_unseen_tasks,
)
from deepccg.testing.check_states import (
    refuses_foreign_states,
    refuses_truncated_states,
    resumes_bit_for_bit,
    states_are_snapshots,
)
from deepccg.testing.toy import Check, ContractError, Subject


def check_learner(
    learner_class: type[Learner],
    *,
    config: Config | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> None:
    """Run every check and raise one ``ContractError`` that lists those that failed, and why.

    Args:
        learner_class: The learner to judge.
        config: Its fields; ``None`` takes their defaults.
        expected_failures: Names of checks that must fail, each with the reason. Strict: it is an
            error if one of them passes.

    A complete method of one's own, a nearest-mean classifier on a reservoir memory. The base class
    gives outputs, masks, prediction, saving and refusing:

    >>> import torch
    >>> from deepccg.core import Config, StepInfo
    >>> from deepccg.gaussian import class_posterior, squared_distances
    >>> from deepccg.memory import reservoir_slots
    >>> from deepccg.methods import NetworkLearner
    >>> class NearestMean(NetworkLearner[Config]):
    ...     Config = Config
    ...
    ...     def learn(self, batch):
    ...         before = int(self.class_table.seen.sum())
    ...         x, y, rows = self.begin_step(batch)
    ...         slots = reservoir_slots(before, self.memory.capacity, len(y), self.generator)
    ...         kept = slots >= 0
    ...         self.memory.write(slots[kept], x[kept], y[kept], rows[kept])
    ...         self.steps += 1
    ...         return StepInfo(loss=0.0)
    ...
    ...     def scores(self, x):
    ...         if self.memory.size == 0:
    ...             return torch.full((len(x), len(self.class_table)), -torch.inf)
    ...         z = self.embed(self.memory.x)
    ...         known = class_posterior(z, self.memory.y, len(self.class_table))
    ...         near = -squared_distances(self.embed(x), known.mean)
    ...         return near.masked_fill(known.count == 0, -torch.inf)
    >>> check_learner(NearestMean)

    What a check finds is said in one line each:

    >>> class Forgetful(NearestMean):
    ...     def state_parts(self):
    ...         return {k: v for k, v in super().state_parts().items() if k != "memory"}
    >>> check_learner(Forgetful)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    deepccg.testing.toy.ContractError: Forgetful fails 1 of ... checks:
    - resumes_bit_for_bit (Save, load in a fresh object, continue: as if never stopped): ...
    """
    checks = learner_checks(learner_class, config, expected_failures=expected_failures)
    failures = [failure for _, check in checks if (failure := failure_of(check)) is not None]
    if failures:
        count = f"{learner_class.__name__} fails {len(failures)} of {len(checks)} checks:"
        raise ContractError("\n- ".join([count, *map(str, failures)])) from failures[0]


def learner_checks(
    learner_class: type[Learner],
    config: Config | None = None,
    *,
    expected_failures: Mapping[str, str] | None = None,
) -> list[tuple[str, Callable[[], None]]]:
    """Every check as a name and a function without arguments, for a test runner.

    >>> from deepccg.methods import SGD
    >>> checks = learner_checks(SGD)
    >>> checks[0][0]
    'config_is_closed_and_documented'
    >>> checks[0][1]()

    With pytest, ``@pytest.mark.parametrize(("name", "check"), learner_checks(MyLearner))``.
    """
    expected = dict(expected_failures or {})
    names = [check.__name__ for check in CHECKS]
    if unknown := sorted(expected.keys() - set(names)):
        raise InputError(f"no check is named {unknown}; there are {sorted(names)}")
    subject = Subject(learner_class, config)
    return [
        (name, partial(run_check, name, check, subject, expected.get(name)))
        for name, check in zip(names, CHECKS, strict=True)
    ]


CHECKS: tuple[Check, ...] = (
    config_is_closed_and_documented,
    steps_tell_finite_scalars,
    uniform_before_learning,
    uniform_on_unseen_tasks,
    probabilities_are_proper,
    predict_agrees_with_scores,
    predicting_changes_nothing,
    it_learns,
    inputs_are_not_modified,
    inputs_are_not_kept,
    odd_batches_are_learned,
    open_task_is_learned,
    columns_never_move,
    equal_tasks_are_one_task,
    images_are_learned,
    refuses_bad_batches,
    same_seed_same_trajectory,
    global_generators_do_not_matter,
    global_generators_are_not_touched,
    resumes_bit_for_bit,
    states_are_snapshots,
    refuses_foreign_states,
    refuses_truncated_states,
    memory_stays_within_budget,
    state_does_not_grow,
    step_cost_does_not_grow,
    instances_share_nothing,
)


def run_check(name: str, check: Check, subject: Subject, expected_failure: str | None) -> None:
    """Run one check, or, where it must fail, insist that it does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the toys are tiny: waking further threads would cost more
    try:
        check(subject)
    except Exception as error:  # a learner under test may raise anything: it is told, and chained
        if expected_failure is None:
            kind = "" if isinstance(error, ContractError) else f"{type(error).__name__}: "
            promise = (check.__doc__ or "").strip().removesuffix(".")
            why = " ".join(str(error).split())
            raise ContractError(f"{name} ({promise}): {kind}{why}") from error
    else:
        if expected_failure is not None:
            raise ContractError(f"{name} passes, but was expected to fail: {expected_failure}")
    finally:
        torch.set_num_threads(threads)


def failure_of(check: Callable[[], None]) -> ContractError | None:
    """Run a check; what it found, if anything."""
    try:
        check()
    except ContractError as failure:
        return failure
    return None
