"""Labelled data in memory: data sets, their labels, and how their parts are divided."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepccg.core import InputError, Task, TestSet, derive_seed
from deepccg.streams.arrays import Array, IntArray
from deepccg.streams.domains import Domain


@dataclass(frozen=True, eq=False)
class Split:
    """Examples and labels.

    Args:
        x: uint8 images ``[N, C, H, W]`` (perhaps memory-mapped) or finite float vectors ``[N, F]``.
        y: ``[N]`` int64 labels, 0 to K - 1.
    """

    x: Array = field(repr=False)
    y: IntArray = field(repr=False)

    def __post_init__(self) -> None:
        images = self.x.ndim == 4 and self.x.dtype == np.uint8
        vectors = self.x.ndim == 2 and self.x.dtype in (np.float32, np.float64)
        if not images and not vectors:
            raise InputError(
                f"examples must be uint8 images [N, C, H, W] or float vectors [N, F]; "
                f"got {self.x.dtype} {list(self.x.shape)}"
            )
        if self.y.dtype != np.int64 or self.y.shape != (len(self.x),):
            raise InputError(
                f"{len(self.x)} examples need int64 labels of shape [{len(self.x)}]; "
                f"got {self.y.dtype} {list(self.y.shape)}"
            )
        if not len(self.y):
            raise InputError("there are no examples")
        if self.y.min() < 0:
            raise InputError(f"example {int(self.y.argmin())} has the label {self.y.min()}")
        if vectors and not np.isfinite(self.x).all():
            row = int(np.flatnonzero(~np.isfinite(self.x).all(axis=1))[0])
            raise InputError(f"example {row} is not finite (NaN or infinity) as {self.x.dtype}")

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: IntArray) -> "Split":
        """Return a copy of these rows, in this order."""
        return Split(self.x[rows], self.y[rows])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set whose parts are opened on first use.

    A run that is scored on held-out training data therefore never opens the test part.
    """

    name: str  # in tables
    class_names: tuple[str, ...]  # of each label
    open_train: Callable[[], Split] = field(repr=False)
    open_test: Callable[[], Split] = field(repr=False)
    asked: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @cached_property
    def train(self) -> Split:
        """The training part."""
        return self._checked("train", self.open_train())

    @property
    def test(self) -> Split:
        """The test part; ``asked["test"]`` counts how often it was opened."""
        self.asked["test"] += 1
        return self._test

    @cached_property
    def _test(self) -> Split:
        return self._checked("test", self.open_test())

    def _checked(self, part: str, split: Split) -> Split:
        if split.y.max() >= self.n_classes:
            raise InputError(
                f"{self.name} has {self.n_classes} classes, but its {part} part has the label "
                f"{split.y.max()}"
            )
        return split


def rows_by_class(y: IntArray) -> list[IntArray]:
    """Return the rows of each class 0 to max(y), ascending; an absent class has none."""
    order = np.argsort(y, kind="stable")
    return np.split(order, np.cumsum(np.bincount(y))[:-1])


def hold_out(split: Split, fraction: float, seed: int) -> tuple[Split, Split]:
    """Divide into a training and a validation part.

    The same ``fraction`` of every class, between 0 and 1, goes to validation; ``seed`` decides
    which examples.
    """
    if not 0 < fraction < 1:
        raise InputError(f"the validation fraction must be between 0 and 1, not {fraction}")
    held = np.zeros(len(split), dtype=np.bool_)
    for c, rows in enumerate(rows_by_class(split.y)):
        n = round(fraction * len(rows))
        if len(rows) and not 0 < n < len(rows):
            raise InputError(
                f"class {c} has {len(rows)} examples: holding out {fraction:g} of them leaves "
                f"{len(rows) - n} to train on and {n} to validate on; each needs at least 1"
            )
        generator = np.random.default_rng(derive_seed(seed, "hold-out", str(c)))
        held[generator.permutation(rows)[:n]] = True
    return split.take(np.flatnonzero(~held)), split.take(np.flatnonzero(held))


def cap_per_class(split: Split, n: int, seed: int) -> Split:
    """Keep at most ``n`` examples of each class, drawn by ``seed``, in their old order."""
    if n < 1:
        raise InputError(f"at least 1 example per class must remain, not {n}")
    rows = rows_by_class(split.y)
    return split.take(_draw(rows, [n] * len(rows), seed))


def make_test_set(
    split: Split,
    tasks: Sequence[Task],
    limit: int | None = None,
    seed: int = 0,
    domains: Sequence[Domain] = (),
) -> TestSet:
    """Return the examples of the tasks' classes, to be scored under each task's mask.

    Args:
        split: Held-out data.
        tasks: The tasks of the stream.
        limit: At most so many examples, equally many of each class (the remainder goes one each
            to the first); a class with fewer gives all it has.
        seed: Decides which, where there is a limit.
        domains: The appearance of each task, where tasks differ in that (``Stream.domains``): each
            shows all the images, and they count once for each.
    """
    if domains and len(domains) != len(tasks):
        raise InputError(f"{len(tasks)} tasks need as many domains, not {len(domains)}")
    limit = limit if limit is None else limit // max(1, len(domains))
    rows = rows_by_class(split.y)
    classes = sorted({c for task in tasks for c in task.classes})
    missing = [c for c in classes if c >= len(rows) or not len(rows[c])]
    if missing:
        raise InputError(f"there are no held-out examples of class {missing[0]}")
    quotas, n = [0] * len(rows), len(classes)
    if limit is not None and limit < n:
        where = " in each domain" if domains else ""
        raise InputError(f"{limit} images{where} cannot show {n} classes: allow at least one each")
    for i, c in enumerate(classes):
        quotas[c] = len(rows[c]) if limit is None else limit // n + (i < limit % n)
    part = split.take(_draw(rows, quotas, seed))
    looks = tuple(partial(_shown, domain) for domain in domains)
    return TestSet(torch.from_numpy(part.x), torch.from_numpy(part.y), tuple(tasks), looks)


def _shown(domain: Domain, x: Tensor) -> Tensor:
    """The images as a domain shows them."""
    return torch.from_numpy(domain(x.numpy()))


def _draw(rows: Sequence[IntArray], quotas: Sequence[int], seed: int) -> IntArray:
    """Draw up to ``quotas[c]`` rows of each class c; returned ascending."""
    drawn = []
    for c, (mine, quota) in enumerate(zip(rows, quotas, strict=True)):
        generator = np.random.default_rng(derive_seed(seed, "draw", str(c)))
        drawn.append(generator.permutation(mine)[:quota])
    return np.sort(np.concatenate(drawn))


def from_arrays(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_test: npt.ArrayLike | None = None,
    y_test: npt.ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    name: str = "arrays",
) -> Dataset:
    """Make a data set from arrays.

    Args:
        x: Training examples: uint8 images, grey ``[N, H, W]`` or channels last ``[N, H, W, C]``
            with 1 to 4 channels, or vectors of numbers ``[N, F]`` (used as float32).
        y: Training labels ``[N]``: integers, contiguous or not, or strings.
        x_test: Test examples, like ``x``. Without them a fifth of each class of ``x``, the same
            for every seed, is held out and never learned.
        y_test: Test labels, like ``y``.
        class_names: One name per class: integer labels are then indices into it, string labels
            must be among it. By default the names are the labels themselves, sorted.
        name: The name of the data set in tables.

    >>> x = np.zeros((4, 8, 8, 3), dtype=np.uint8)
    >>> data = from_arrays(x, ["cat", "dog", "cat", "dog"], x, ["dog", "dog", "cat", "cat"])
    >>> data.class_names, data.train.x.shape, data.test.y
    (('cat', 'dog'), (4, 3, 8, 8), array([1, 1, 0, 0]))
    """
    if (x_test is None) != (y_test is None):
        raise InputError("test examples and their labels go together: give both, or neither")
    labels, names = encode_labels(y, class_names)
    train = Split(_examples(x), labels)
    if x_test is None or y_test is None:
        train, test = hold_out(train, fraction=0.2, seed=0)
        return Dataset(name, names, lambda: train, lambda: test)
    own_labels, own_names = encode_labels(y_test, class_names)
    test = Split(_examples(x_test), align_labels(own_labels, own_names, names))
    if train.x.shape[1:] != test.x.shape[1:]:
        raise InputError(
            f"training and test examples differ in shape: {list(train.x.shape[1:])} "
            f"and {list(test.x.shape[1:])}"
        )
    return Dataset(name, names, lambda: train, lambda: test)


def _examples(values: npt.ArrayLike) -> Array:
    """Return vectors ``[N, F]`` as float32, images as ``[N, C, H, W]``."""
    array = as_array(values, "examples")
    if array.ndim == 2 and array.dtype.kind in "biuf":
        with np.errstate(over="ignore"):  # a number too large for float32 is refused by Split
            return array.astype(np.float32)
    if array.ndim == 2:
        raise InputError(f"vectors must be numbers, not {array.dtype}: convert them")
    if array.ndim in (3, 4) and array.dtype != np.uint8:
        raise InputError(
            f"images must be uint8, 0 to 255, not {array.dtype}: scale and convert them"
        )
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.ndim != 4 or not 1 <= array.shape[3] <= 4:
        raise InputError(
            f"examples must be vectors [N, F] or images [N, H, W] or [N, H, W, C] with 1 to 4 "
            f"channels, not {list(array.shape)}; bring channels last with x.transpose(0, 2, 3, 1)"
        )
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2))


def encode_labels(
    values: npt.ArrayLike, names: Sequence[str] | None = None
) -> tuple[IntArray, tuple[str, ...]]:
    """Encode labels as indices into class names.

    Args:
        values: ``[N]`` integers or strings.
        names: The class names, if known: integers are then indices into them and strings must be
            among them. Otherwise the classes are the different values, sorted.

    Returns:
        The ``[N]`` int64 labels and the class names.

    >>> encode_labels(["dog", "cat", "dog"])
    (array([1, 0, 1]), ('cat', 'dog'))
    >>> encode_labels([7, 3])
    (array([1, 0]), ('3', '7'))
    """
    if names is not None and len(set(names)) != len(names):
        raise InputError("two classes have the same name")
    array = as_array(values, "labels")
    if array.ndim != 1:
        raise InputError(f"labels must have the shape [N], not {list(array.shape)}")
    if array.dtype == object and all(isinstance(value, str) for value in array):
        array = array.astype(np.str_)
    if array.dtype.kind not in "biuU":
        raise InputError(f"labels must be integers or strings, not {array.dtype}")
    if names is not None and array.dtype.kind != "U":
        return _as_indices(array, len(names)), tuple(names)
    found, y = np.unique(array, return_inverse=True)
    own_names = tuple(str(value) for value in found)
    if names is None:
        return y.astype(np.int64), own_names
    return align_labels(y.astype(np.int64), own_names, names), tuple(names)


def as_array(values: npt.ArrayLike, what: str) -> npt.NDArray[np.generic]:
    """Return ``np.asarray(values)``; an ``InputError`` if they make no array."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what} make no array: {error}") from None


def align_labels(y: IntArray, names: Sequence[str], reference: Sequence[str]) -> IntArray:
    """Renumber labels from the order of ``names`` to that of ``reference``."""
    if tuple(names) == tuple(reference):
        return y
    position = {name: i for i, name in enumerate(reference)}
    renumbered = np.array([position.get(name, -1) for name in names], dtype=np.int64)[y]
    if len(y) and renumbered.min() < 0:
        unknown = names[int(y[renumbered.argmin()])]
        raise InputError(f"the class '{unknown}' is not one of the {len(position)} known classes")
    return renumbered


def _as_indices(labels: npt.NDArray[np.generic], n_classes: int) -> IntArray:
    y = labels.astype(np.int64)
    outside = np.flatnonzero((y < 0) | (y >= n_classes))
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"row {row} has the label {y[row]}, outside 0 to {n_classes - 1}"
            + (" (is this part unlabelled?)" if y[row] == -1 else "")
        )
    return y
