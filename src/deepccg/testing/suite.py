"""The list of checks, and how they are run."""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from deepccg.core import Config, InputError, Learner
from deepccg.testing import check_costs, check_learning, check_states
from deepccg.testing.toy import Check, ContractError, Subject


def check_learner(
    learner_class: type[Learner],
    *,
    config: Config | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> None:
    """Run every check and raise one ``ContractError`` that lists those that failed, and why.

    Args:
        learner_class: The learner to test.
        config: Its fields; ``None`` takes their defaults.
        expected_failures: Names of checks that must fail, each with the reason. Strict: it is an
            error if one of them passes.

    A complete method, a nearest-mean classifier on a reservoir memory. The base class provides the
    class table, masks, prediction, saving and validation:

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
    ...         x, y, task_idx = self.begin_step(batch)
    ...         slots = reservoir_slots(before, self.memory.capacity, len(y), self.generator)
    ...         kept = slots >= 0
    ...         self.memory.write(slots[kept], x[kept], y[kept], task_idx[kept])
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

    Each failed check is reported in one line:

    >>> class Forgetful(NearestMean):
    ...     def state_parts(self):
    ...         return {k: v for k, v in super().state_parts().items() if k != "memory"}
    >>> check_learner(Forgetful)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    deepccg.testing.toy.ContractError: Forgetful fails 1 of ... checks:
    - resumes_bit_for_bit (Save, load in a fresh object, continue: as if never stopped): ...
    """
    checks = learner_checks(learner_class, config, expected_failures=expected_failures)
    failures: list[ContractError] = []
    for _, check in checks:
        try:
            check()
        except ContractError as failure:
            failures.append(failure)
    if failures:
        count = f"{learner_class.__name__} fails {len(failures)} of {len(checks)} checks:"
        raise ContractError("\n- ".join([count, *map(str, failures)])) from failures[0]


def learner_checks(
    learner_class: type[Learner],
    config: Config | None = None,
    *,
    expected_failures: Mapping[str, str] | None = None,
) -> list[tuple[str, Callable[[], None]]]:
    """Return each check as a name and a function without arguments, for a test runner.

    >>> from deepccg.methods import SGD
    >>> checks = learner_checks(SGD)
    >>> checks[0][0]
    'config_is_closed_and_documented'
    >>> checks[0][1]()

    With pytest, ``@pytest.mark.parametrize(("name", "check"), learner_checks(MyLearner))``.
    """
    expected = dict(expected_failures or {})
    checks = {check.__name__: check for check in CHECKS}
    if unknown := sorted(expected.keys() - checks.keys()):
        raise InputError(f"no check is named {unknown}; there are {sorted(checks)}")
    subject = Subject(learner_class, config)
    return [
        (name, partial(run_check, name, check, subject, expected.get(name)))
        for name, check in checks.items()
    ]


CHECKS: tuple[Check, ...] = (
    check_learning.config_is_closed_and_documented,
    check_learning.steps_tell_finite_scalars,
    check_learning.uniform_before_learning,
    check_learning.uniform_on_unseen_tasks,
    check_learning.probabilities_are_proper,
    check_learning.predict_agrees_with_scores,
    check_learning.predicting_changes_nothing,
    check_learning.it_learns,
    check_learning.inputs_are_not_modified,
    check_learning.inputs_are_not_kept,
    check_learning.odd_batches_are_learned,
    check_learning.open_task_is_learned,
    check_learning.columns_never_move,
    check_learning.equal_tasks_are_one_task,
    check_learning.images_are_learned,
    check_learning.refuses_bad_batches,
    check_states.same_seed_same_trajectory,
    check_states.global_generators_do_not_matter,
    check_states.global_generators_are_not_touched,
    check_states.resumes_bit_for_bit,
    check_states.states_are_snapshots,
    check_states.refuses_foreign_states,
    check_states.refuses_truncated_states,
    check_costs.memory_stays_within_budget,
    check_costs.state_does_not_grow,
    check_costs.step_cost_does_not_grow,
    check_costs.instances_share_nothing,
)


def run_check(name: str, check: Check, subject: Subject, expected_failure: str | None) -> None:
    """Run one check; with ``expected_failure``, fail if it passes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the toys are tiny: waking further threads would cost more
    try:
        check(subject)
    except Exception as error:  # a learner under test may raise anything: report and chain it
        if expected_failure is None:
            kind = "" if isinstance(error, ContractError) else f"{type(error).__name__}: "
            claim = (check.__doc__ or "").strip().removesuffix(".")
            why = " ".join(str(error).split())
            raise ContractError(f"{name} ({claim}): {kind}{why}") from error
    else:
        if expected_failure is not None:
            raise ContractError(f"{name} passes, but was expected to fail: {expected_failure}")
    finally:
        torch.set_num_threads(threads)
