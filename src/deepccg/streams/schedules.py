"""Schedules: in which order a labelled data set becomes a stream of tasks."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from deepccg.core import InputError, Task, derive_seed, did_you_mean
from deepccg.streams.arrays import IntArray
from deepccg.streams.data import Split, rows_by_class
from deepccg.streams.domains import DomainArray, draw_domains
from deepccg.streams.stream import Stream

MOST_SPREAD = 1000  # of a class's peak: more classes than that are mixed evenly


def disjoint(
    data: Split,
    *,
    classes_per_task: int,
    examples_per_class: int = 500,
    batch_size: int = 10,
    seed: int = 0,
    class_order: Sequence[int] | None = None,
    imbalance: float | None = None,
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
        imbalance: How many times more examples the most frequent class has than the rarest: class c
            has ``n imbalance^(-rank_c / (K - 1))`` of them, rounded, with ranks drawn from ``seed``
            and ``n = min(smallest class, examples_per_class)``. ``None``: as many as there are.
    """
    _check_sizes(examples_per_class, batch_size)
    pools = _pools(data, class_order, seed, examples_per_class, imbalance)
    groups = _groups(list(pools), classes_per_task)
    rows = [np.concatenate([pools[c] for c in group]) for group in groups]
    return _stream(data, groups, _shuffled(rows, seed), batch_size)


def shifting_window(
    data: Split,
    *,
    classes_per_task: int,
    examples_per_class: int = 500,
    batch_size: int = 10,
    seed: int = 0,
    class_order: Sequence[int] | None = None,
    imbalance: float | None = None,
) -> Stream:
    """Overlapping tasks: a window of ``l = classes_per_task`` classes moves on by one class.

    Task i holds classes ``c_i .. c_{i+l-1}`` of the order, so k classes give ``k - l + 1`` tasks.
    Every task has the same number ``n = floor(min(smallest class, examples_per_class) / l)`` of
    new examples of each of its classes; no example is in two tasks. The first and last classes
    are in fewer windows and so have fewer examples: n, 2n, ..., l n, ..., 2n, n. With ``imbalance``
    each class has its own n.

    Args: as for ``disjoint``.
    """
    _check_sizes(examples_per_class, batch_size)
    window = classes_per_task
    pools = _pools(data, class_order, seed, examples_per_class, imbalance or 1.0)
    order = list(pools)
    _check_classes_per_task(window, order)
    counts = np.bincount(data.y)
    scarcest = min(order, key=lambda c: (len(pools[c]), counts[c]))
    if len(pools[scarcest]) < window:
        raise InputError(
            f"a window of {window} classes needs at least {window} examples of each class: "
            f"class {scarcest} has {len(pools[scarcest])} to use, and examples_per_class is "
            f"{examples_per_class}"
        )
    groups, rows = [], []
    for i in range(len(order) - window + 1):
        groups.append(tuple(order[i : i + window]))
        # The class at position p was in window p - l + 1 first (or in window 0).
        parts = [(order[p], i - max(0, p - window + 1)) for p in range(i, i + window)]
        sizes = {c: len(pools[c]) // window for c, _ in parts}
        shares = [pools[c][visit * sizes[c] : (visit + 1) * sizes[c]] for c, visit in parts]
        rows.append(np.concatenate(shares))
    return _stream(data, groups, _shuffled(rows, seed), batch_size)


def blurry(
    data: Split,
    *,
    classes_per_task: int,
    blur: float = 0.1,
    examples_per_class: int = 500,
    batch_size: int = 10,
    seed: int = 0,
    class_order: Sequence[int] | None = None,
    imbalance: float | None = None,
) -> Stream:
    """Disjoint tasks with blurry boundaries: of each class, a share comes in the other tasks.

    Of a class's n examples ``round(blur n)``, but never all, are dealt to the other tasks, as
    equally as possible; which task gets one more is drawn from ``seed``. A batch can hold any
    class, so batches come without a task; scored are the tasks without blur. (Bang et al.,
    "Rainbow memory", CVPR 2021.)

    Args: as for ``disjoint``; ``blur`` is at least 0 and less than 1.
    """
    _check_sizes(examples_per_class, batch_size)
    if not 0 <= blur < 1:
        raise InputError(f"blur must be at least 0 and less than 1, not {blur:g}")
    pools = _pools(data, class_order, seed, examples_per_class, imbalance)
    groups = _groups(list(pools), classes_per_task)
    if len(groups) < 2:
        raise InputError("a blurry stream needs two tasks or more: lower classes_per_task")
    parts: list[list[IntArray]] = [[] for _ in groups]
    for place, group in enumerate(groups):
        for c in group:
            generator = np.random.default_rng(derive_seed(seed, "blur", str(c)))
            others = generator.permutation([i for i in range(len(groups)) if i != place])
            n = len(pools[c])
            kept = n - min(round(blur * n), n - 1)
            parts[place].append(pools[c][:kept])
            for k, other in enumerate(others):
                parts[other].append(pools[c][kept + k :: len(others)])
    rows = _shuffled([np.concatenate(part) for part in parts], seed)
    return _stream(data, groups, rows, batch_size, task_free=True)


def gaussian(
    data: Split,
    *,
    classes_per_task: int,
    spread: float = 1.0,
    examples_per_class: int = 500,
    batch_size: int = 10,
    seed: int = 0,
    class_order: Sequence[int] | None = None,
    imbalance: float | None = None,
) -> Stream:
    """Classes that come and go: the examples of each arrive around its peak, Gaussian in time.

    An example of the class at place p of the order has the time ``p + spread N(0, 1)``, and
    examples arrive in order of their times. There are no boundaries, so batches come without a
    task; scored are tasks of ``classes_per_task`` classes with neighbouring peaks, each when as
    many examples have come as it and those before it have. (Shanahan et al., "Encoders and
    ensembles for task-free continual learning", 2021.)

    Args: as for ``disjoint``; ``spread`` is the standard deviation of a class's times, in distances
        between two peaks, and more than 0.
    """
    _check_sizes(examples_per_class, batch_size)
    if not 0 < spread <= MOST_SPREAD:
        raise InputError(f"spread must be more than 0 and at most {MOST_SPREAD:,}, not {spread:g}")
    pools = _pools(data, class_order, seed, examples_per_class, imbalance)
    groups = _groups(list(pools), classes_per_task)
    times = []
    for peak, (c, pool) in enumerate(pools.items()):
        generator = np.random.default_rng(derive_seed(seed, "times", str(c)))
        times.append(peak + spread * generator.standard_normal(len(pool)))
    ordered = np.concatenate(list(pools.values()))[np.concatenate(times).argsort(kind="stable")]
    ends = np.cumsum([sum(len(pools[c]) for c in group) for group in groups])
    return _stream(data, groups, np.split(ordered, ends[:-1]), batch_size, task_free=True)


def domain(
    data: Split,
    *,
    domains: int = 5,
    appearance: str = "rotation",
    examples_per_class: int = 500,
    batch_size: int = 10,
    seed: int = 0,
    class_order: Sequence[int] | None = None,
    imbalance: float | None = None,
) -> Stream:
    """Domain-incremental: every task has all classes, and shows them in its own appearance.

    The examples of each class are dealt to the domains as equally as possible, and each comes in
    its domain only. The first domain is the data as it is (``draw_domains`` has the others).

    Args: as for ``disjoint``; ``domains`` is how many, at least 2, and ``appearance`` what changes:
        ``rotation`` or ``permutation``.
    """
    _check_sizes(examples_per_class, batch_size)
    looks = draw_domains(appearance, domains, data.x.shape[1:], seed)
    pools = _pools(data, class_order, seed, examples_per_class, imbalance)
    owner = np.zeros(len(data), dtype=np.int64)
    for c, pool in pools.items():
        generator = np.random.default_rng(derive_seed(seed, "deal", str(c)))
        owner[pool] = (np.arange(len(pool)) + generator.integers(domains)) % domains
    used = np.concatenate(list(pools.values()))
    rows = [used[owner[used] == place] for place in range(domains)]
    if empty := [place for place, own in enumerate(rows) if not len(own)]:
        raise InputError(f"domain {empty[0]} has no examples: lower domains, or give more examples")
    groups = [tuple(pools)] * domains
    x = DomainArray(data.x, looks, owner)
    return _stream(data, groups, _shuffled(rows, seed), batch_size, x=x)


# The streams by the name that `deepccg run --stream` takes.
SCHEDULES: dict[str, Callable[..., Stream]] = {
    "disjoint": disjoint,
    "shifting-window": shifting_window,
    "blurry": blurry,
    "gaussian": gaussian,
    "domain": domain,
}
TASK_FREE = ("blurry", "gaussian")  # whose batches come without a task
# The options that only some kinds have.
OWN_OPTIONS = {
    "classes_per_task": ("disjoint", "shifting-window", "blurry", "gaussian"),
    "blur": ("blurry",),
    "spread": ("gaussian",),
    "domains": ("domain",),
    "appearance": ("domain",),
}


def check_options(kind: str, given: Iterable[str]) -> None:
    """Refuse an option that streams of this kind do not have."""
    for name in given:
        if kind not in OWN_OPTIONS.get(name, (kind,)):
            raise InputError(
                f"a {kind} stream has no {name}: that is for {', '.join(OWN_OPTIONS[name])}"
            )


def build_stream(
    kind: str,
    data: Split,
    *,
    classes_per_task: int | None = None,
    examples_per_class: int = 500,
    batch_size: int = 10,
    seed: int = 0,
    class_order: Sequence[int] | None = None,
    imbalance: float | None = None,
    **options: float | str | None,
) -> Stream:
    """The stream of schedule ``kind``, one of ``SCHEDULES``; the fields as for ``disjoint``.

    ``options`` are those of the kind (``blur``, ``spread``, ``domains``, ``appearance``); ``None``
    takes the default, also of ``classes_per_task``.
    """
    if kind not in SCHEDULES:
        hint = did_you_mean(kind, SCHEDULES)
        raise InputError(f"unknown stream '{kind}'{hint}: choose one of {', '.join(SCHEDULES)}")
    own = {"classes_per_task": classes_per_task, **options}
    own = {name: value for name, value in own.items() if value is not None}
    check_options(kind, own)
    if kind in OWN_OPTIONS["classes_per_task"]:
        own.setdefault("classes_per_task", default_classes_per_task(int(data.y.max()) + 1))
    return SCHEDULES[kind](
        data,
        examples_per_class=examples_per_class,
        batch_size=batch_size,
        seed=seed,
        class_order=class_order,
        imbalance=imbalance,
        **own,
    )


def default_classes_per_task(n_classes: int) -> int:
    """The paper's choice: 2 for ten classes (CIFAR-10), 5 for a hundred.

    >>> default_classes_per_task(10), default_classes_per_task(100)
    (2, 5)
    """
    return 2 if n_classes <= 10 else 5


def _check_sizes(examples_per_class: int, batch_size: int) -> None:
    for field, value in {
        "examples_per_class": examples_per_class,
        "batch_size": batch_size,
    }.items():
        if value < 1:
            raise InputError(f"{field} must be at least 1, not {value}")


def _check_classes_per_task(classes_per_task: int, order: Sequence[int]) -> None:
    if classes_per_task < 1:
        raise InputError(f"classes_per_task must be at least 1, not {classes_per_task}")
    if classes_per_task > len(order):
        raise InputError(f"{classes_per_task} classes per task, but only {len(order)} classes")


def _groups(order: Sequence[int], classes_per_task: int) -> list[tuple[int, ...]]:
    """The classes, so many at a time; the last group may be smaller."""
    _check_classes_per_task(classes_per_task, order)
    starts = range(0, len(order), classes_per_task)
    return [tuple(order[i : i + classes_per_task]) for i in starts]


def _pools(
    data: Split,
    class_order: Sequence[int] | None,
    seed: int,
    examples_per_class: int,
    imbalance: float | None,
) -> dict[int, IntArray]:
    """The rows of each class that are used, shuffled once, in the order of the classes' arrival."""
    rows = rows_by_class(data.y)
    if class_order is None:
        generator = np.random.default_rng(derive_seed(seed, "class-order"))
        class_order = generator.permutation(len(rows)).tolist()
    order = [int(c) for c in class_order]
    if len(set(order)) != len(order):
        raise InputError(f"class_order names a class twice: {order}")
    pools = {}
    for c in order:
        if not 0 <= c < len(rows) or not len(rows[c]):
            raise InputError(f"class {c} has no examples: leave it out of class_order")
        # One generator per class: its examples do not depend on when it arrives.
        generator = np.random.default_rng(derive_seed(seed, "examples", str(c)))
        pools[c] = generator.permutation(rows[c])[:examples_per_class]
    if imbalance is None:
        return pools
    sizes = _long_tailed({c: len(pool) for c, pool in pools.items()}, imbalance, seed)
    return {c: pool[: sizes[c]] for c, pool in pools.items()}


def _long_tailed(available: Mapping[int, int], imbalance: float, seed: int) -> dict[int, int]:
    """How many examples each class has: the most frequent ``imbalance`` times the rarest's."""
    scarcest = min(available, key=lambda c: available[c])
    n = available[scarcest]
    if not 1 <= imbalance <= n:
        raise InputError(
            f"imbalance must be between 1 and {n}, the examples of class {scarcest}, "
            f"not {imbalance:g}"
        )
    generator = np.random.default_rng(derive_seed(seed, "imbalance"))
    ranks = generator.permutation(len(available)).tolist()
    last = max(1, len(available) - 1)
    of_class = dict(zip(sorted(available), ranks, strict=True))
    return {c: round(n * imbalance ** (-of_class[c] / last)) for c in available}


def _shuffled(rows: Sequence[IntArray], seed: int) -> list[IntArray]:
    """Each task's rows, in an order of its own."""
    return [
        np.random.default_rng(derive_seed(seed, "task", str(i))).permutation(mine)
        for i, mine in enumerate(rows)
    ]


def _stream(
    data: Split,
    groups: Sequence[tuple[int, ...]],
    rows: Sequence[IntArray],
    batch_size: int,
    *,
    x: DomainArray | None = None,
    task_free: bool = False,
) -> Stream:
    """Cut each task's rows, in their order, into batches."""
    starts, tasks, begin = [0], [], 0
    for i, (classes, mine) in enumerate(zip(groups, rows, strict=True)):
        ends = [*range(begin + batch_size, begin + len(mine), batch_size), begin + len(mine)]
        starts += ends
        tasks += [Task(id=i, classes=classes)] * len(ends)
        begin += len(mine)
    shown = data.x if x is None else x
    order, offsets = np.concatenate(rows), np.array(starts)
    return Stream(shown, data.y, order, offsets, tasks, task_free=task_free)
