"""Schedules: in which order a labelled data set becomes a stream of tasks."""

from collections.abc import Sequence

import numpy as np

from deepccg.core import InputError, Task, derive_seed, did_you_mean
from deepccg.streams.data import Split, rows_by_class
from deepccg.streams.stream import IntArray, Stream


def disjoint(
    data: Split,
    *,
    classes_per_task: int,
    examples_per_class: int = 500,
    batch_size: int = 10,
    seed: int = 0,
    class_order: Sequence[int] | None = None,
) -> Stream:
    """Tasks that share no class, one after the other.

    If the classes do not divide, the last task holds the remainder. Classes need not have equally
    many examples. A task's last batch may be smaller than the others.

    Args:
        data: Labelled examples.
        classes_per_task: How many classes each task has.
        examples_per_class: At most so many examples of each class are used.
        batch_size: Examples per batch.
        seed: Decides class order, which examples are used, and their order.
        class_order: The classes in order of arrival (all or some); drawn from ``seed`` if None.
    """
    _check_sizes(classes_per_task, examples_per_class, batch_size)
    pools = _pools(data, class_order, classes_per_task, seed)
    order = list(pools)
    starts = range(0, len(order), classes_per_task)
    groups = [tuple(order[i : i + classes_per_task]) for i in starts]
    rows = [np.concatenate([pools[c][:examples_per_class] for c in group]) for group in groups]
    return _stream(data, groups, rows, batch_size, seed)


def shifting_window(
    data: Split,
    *,
    classes_per_task: int,
    examples_per_class: int = 500,
    batch_size: int = 10,
    seed: int = 0,
    class_order: Sequence[int] | None = None,
) -> Stream:
    """Overlapping tasks: a window of ``l = classes_per_task`` classes moves on by one class.

    Task i holds classes ``c_i .. c_{i+l-1}`` of the order, so k classes give ``k - l + 1`` tasks.
    Every task has the same number ``n = floor(min(smallest class, examples_per_class) / l)`` of
    new examples of each of its classes; no example is in two tasks. The first and last classes
    are in fewer windows and so have fewer examples: n, 2n, ..., l n, ..., 2n, n.

    Args: as for ``disjoint``.
    """
    _check_sizes(classes_per_task, examples_per_class, batch_size)
    window = classes_per_task
    pools = _pools(data, class_order, window, seed)
    order = list(pools)
    scarcest = min(order, key=lambda c: len(pools[c]))
    n = min(len(pools[scarcest]), examples_per_class) // window
    if n < 1:
        raise InputError(
            f"a window of {window} classes needs at least {window} examples of each class: "
            f"class {scarcest} has {len(pools[scarcest])} and examples_per_class is "
            f"{examples_per_class}"
        )
    groups, rows = [], []
    for i in range(len(order) - window + 1):
        groups.append(tuple(order[i : i + window]))
        # The class at position p was in window p - l + 1 first (or in window 0).
        parts = [(order[p], i - max(0, p - window + 1)) for p in range(i, i + window)]
        rows.append(np.concatenate([pools[c][visit * n : (visit + 1) * n] for c, visit in parts]))
    return _stream(data, groups, rows, batch_size, seed)


# The streams by the name that `deepccg run --stream` takes.
SCHEDULES = {"disjoint": disjoint, "shifting-window": shifting_window}


def build_stream(
    kind: str,
    data: Split,
    *,
    classes_per_task: int,
    examples_per_class: int = 500,
    batch_size: int = 10,
    seed: int = 0,
    class_order: Sequence[int] | None = None,
) -> Stream:
    """The stream of schedule ``kind``, one of ``SCHEDULES``; the fields as for ``disjoint``."""
    if kind not in SCHEDULES:
        hint = did_you_mean(kind, SCHEDULES)
        raise InputError(f"unknown stream '{kind}'{hint}: choose one of {', '.join(SCHEDULES)}")
    return SCHEDULES[kind](
        data,
        classes_per_task=classes_per_task,
        examples_per_class=examples_per_class,
        batch_size=batch_size,
        seed=seed,
        class_order=class_order,
    )


def default_classes_per_task(n_classes: int) -> int:
    """The paper's choice: 2 for ten classes (CIFAR-10), 5 for a hundred.

    >>> default_classes_per_task(10), default_classes_per_task(100)
    (2, 5)
    """
    return 2 if n_classes <= 10 else 5


def _check_sizes(classes_per_task: int, examples_per_class: int, batch_size: int) -> None:
    sizes = {
        "classes_per_task": classes_per_task,
        "examples_per_class": examples_per_class,
        "batch_size": batch_size,
    }
    for field, value in sizes.items():
        if value < 1:
            raise InputError(f"{field} must be at least 1, not {value}")


def _pools(
    data: Split, class_order: Sequence[int] | None, classes_per_task: int, seed: int
) -> dict[int, IntArray]:
    """Each class's rows, shuffled once, in the order in which the classes arrive."""
    rows = rows_by_class(data.y)
    if class_order is None:
        generator = np.random.default_rng(derive_seed(seed, "class-order"))
        class_order = generator.permutation(len(rows)).tolist()
    order = [int(c) for c in class_order]
    if len(set(order)) != len(order):
        raise InputError(f"class_order names a class twice: {order}")
    if classes_per_task > len(order):
        raise InputError(f"{classes_per_task} classes per task, but only {len(order)} classes")
    pools = {}
    for c in order:
        if not 0 <= c < len(rows) or not len(rows[c]):
            raise InputError(f"class {c} has no examples: leave it out of class_order")
        # One generator per class: its examples do not depend on when it arrives.
        generator = np.random.default_rng(derive_seed(seed, "examples", str(c)))
        pools[c] = generator.permutation(rows[c])
    return pools


def _stream(
    data: Split,
    groups: Sequence[tuple[int, ...]],
    rows: Sequence[IntArray],
    batch_size: int,
    seed: int,
) -> Stream:
    """Shuffle each task's rows and cut them into batches."""
    order, starts, tasks, begin = [], [0], [], 0
    for i, (classes, mine) in enumerate(zip(groups, rows, strict=True)):
        generator = np.random.default_rng(derive_seed(seed, "task", str(i)))
        order.append(generator.permutation(mine))
        ends = [*range(begin + batch_size, begin + len(mine), batch_size), begin + len(mine)]
        starts += ends
        tasks += [Task(id=i, classes=classes)] * len(ends)
        begin += len(mine)
    return Stream(data.x, data.y, np.concatenate(order), np.array(starts), tasks)
