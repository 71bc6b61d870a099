"""A call that fails leaves a classifier as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """What fails within leaves every attribute as it was before, or absent as it was.

    What an attribute refers to must be replaced, not changed; a learner that goes on learning has
    its own ``all_or_nothing``.
    """
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
