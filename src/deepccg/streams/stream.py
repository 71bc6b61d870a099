"""A stream is an immutable, indexable sequence of batches; a run reads it once, by a cursor.

A joint stream is the exception: the pooled, shuffled data that an offline reference learns from.
"""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch

from deepccg.core import Batch, InputError, SecondRead, Task, derive_seed
from deepccg.streams.arrays import Array, IntArray
from deepccg.streams.domains import Domain, DomainArray

MOST_READS = 10**8  # of a joint stream: their order is drawn beforehand and kept
_FINGERPRINT_IMAGES = 64  # enough to notice other pixels under the same labels, cheap at any size


class Stream:
    """Batches in the order they arrive, each with its task.

    The examples stay where they are (an array, perhaps memory-mapped); a batch is gathered when
    it is asked for, so any position can be read at once and resuming replays nothing.

    Args:
        x: ``[N, ...]`` examples: uint8 images ``[N, C, H, W]`` or float vectors ``[N, F]``; or a
            ``DomainArray`` of them.
        y: ``[N]`` int64 labels.
        rows: ``[E]`` rows of ``x``, in order of arrival.
        offsets: ``[S + 1]``: batch ``i`` is ``rows[offsets[i]:offsets[i + 1]]``.
        tasks: The task of each of the S batches. ``Task.batches`` is filled in here.
        task_free: Whether batches come without a task. A batch may then hold classes of any task,
            and tasks only say what is scored, and when.
    """

    passes = 1  # how often an example may be read

    def __init__(
        self,
        x: Array | DomainArray,
        y: IntArray,
        rows: IntArray,
        offsets: IntArray,
        tasks: Sequence[Task],
        *,
        task_free: bool = False,
    ) -> None:
        self._x = x if isinstance(x, DomainArray) else _frozen(np.asarray(x))
        self._y = _frozen(np.asarray(y, dtype=np.int64))
        self._rows = _frozen(np.array(rows, dtype=np.int64))
        self._offsets = _frozen(np.array(offsets, dtype=np.int64))
        self._task_free = task_free
        self._check(tasks)
        counts = Counter(task.id for task in tasks)
        self._tasks = {t.id: dataclasses.replace(t, batches=counts[t.id]) for t in tasks}
        self._task_ids = tuple(task.id for task in tasks)

    def _check(self, tasks: Sequence[Task]) -> None:
        offsets, rows = self._offsets, self._rows
        if self._x.ndim < 2 or self._y.shape != (len(self._x),):
            raise InputError(
                f"a stream needs x of shape [N, ...] and y of shape [N]; "
                f"got {list(self._x.shape)} and {list(self._y.shape)}"
            )
        if len(offsets) != len(tasks) + 1 or offsets[0] != 0 or offsets[-1] != len(rows):
            raise InputError("a stream's offsets must run from 0 to len(rows), one step per task")
        if (np.diff(offsets) < 1).any():
            raise InputError("a stream has a batch without examples")
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self._x)):
            raise InputError(f"a stream names rows outside its {len(self._x)} examples")
        distinct = {task: k for k, task in enumerate(dict.fromkeys(tasks))}
        owner = np.repeat([distinct[task] for task in tasks], np.diff(offsets))
        every = [c for task in distinct for c in task.classes]
        for task, k in distinct.items():
            possible = every if self._task_free else task.classes
            foreign = np.setdiff1d(self._y[rows[owner == k]], possible)
            if len(foreign):
                raise InputError(f"task {task.id} holds labels outside its classes: {foreign}")
        if len({task.id for task in tasks}) != len(distinct):
            raise InputError("a stream has two different tasks with the same id")

    def __len__(self) -> int:
        return len(self._task_ids)

    def __getitem__(self, step: int) -> Batch:
        rows = self.indices(step)
        x, y = torch.from_numpy(self._x[rows]), torch.from_numpy(self._y[rows])
        return Batch(x, y, None if self._task_free else self.task_of(step))

    def __repr__(self) -> str:
        return f"Stream({len(self)} batches, {self.examples} examples, {len(self.tasks)} tasks)"

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in order of first appearance."""
        return tuple(self._tasks.values())

    @property
    def classes(self) -> tuple[int, ...]:
        """The labels, in the order in which the tasks introduce them."""
        return tuple(dict.fromkeys(c for task in self.tasks for c in task.classes))

    @property
    def task_free(self) -> bool:
        """Whether batches come without a task."""
        return self._task_free

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The appearance of each task's examples; none if all are as they are."""
        return self._x.domains if isinstance(self._x, DomainArray) else ()

    @property
    def examples(self) -> int:
        """How many examples the whole stream hands out."""
        return len(self._rows)

    @property
    def source_size(self) -> int:
        """How many examples the underlying data has (N); the stream need not use all."""
        return len(self._x)

    def indices(self, step: int) -> IntArray:
        """The rows of the underlying data that make batch ``step``."""
        step = self._position(step)
        return self._rows[self._offsets[step] : self._offsets[step + 1]]

    def task_of(self, step: int) -> Task:
        """The task of batch ``step``, also where the batch does not tell it."""
        return self._tasks[self._task_ids[self._position(step)]]

    def fingerprint(self) -> str:
        """A hash by which a checkpoint knows its stream: order, labels, tasks, some pixels."""
        tasks = [[task.id, list(map(int, task.classes))] for task in self.tasks]
        about = [tasks, self._task_ids, self._x.dtype.str, self._x.shape]
        about += ["task-free"] if self._task_free else []
        digest = hashlib.blake2b(json.dumps(about).encode(), digest_size=16)
        for array in (self._rows, self._offsets, self._y[self._rows]):
            digest.update(array.astype("<i8").tobytes())
        sample = self._rows[:: max(1, len(self._rows) // _FINGERPRINT_IMAGES)]
        digest.update(np.ascontiguousarray(self._x[sample]).tobytes())
        return digest.hexdigest()

    def _position(self, step: int) -> int:
        position = step + len(self) if step < 0 else step
        if not 0 <= position < len(self):
            raise IndexError(f"batch {step} of a stream of {len(self)} batches")
        return position


class JointStream(Stream):
    """A stream's examples, pooled and shuffled, read ``passes`` times: offline, not online.

    A learner is tested on the same tasks: ``tasks`` and ``classes`` are those of ``stream``.
    Every batch counts as one of the last task, since by then all tasks have been met.

    Args:
        stream: The online stream whose tasks are tested.
        pool: Where the examples come from; ``None``: from ``stream``, and each keeps its own task
            (``Batch.tasks``). Examples of another pool, or of a task-free stream, have no task.
        passes: How often each example is read.
        batch_size: Examples per batch.
        seed: Decides the order, another one for each pass.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        pool: Stream | None = None,
        passes: int = 1,
        batch_size: int = 10,
        seed: int = 0,
    ) -> None:
        source = stream if pool is None else pool
        if source.examples * passes > MOST_READS:
            raise InputError(
                f"{passes:,} passes over {source.examples:,} examples are more than "
                f"{MOST_READS:,} reads: lower stream.epochs"
            )
        generator = np.random.default_rng(derive_seed(seed, "joint"))
        order = np.concatenate([generator.permutation(source.examples) for _ in range(passes)])
        starts = [
            start + first
            for first in range(0, len(order), source.examples)
            for start in range(0, source.examples, batch_size)
        ]
        offsets = np.array([*starts, len(order)])
        everything = [Task(0, source.classes)] * len(starts)
        super().__init__(source._x, source._y, source._rows[order], offsets, everything)
        self.passes = passes
        self._tested = stream.tasks
        self._owner: IntArray | None = None  # of each example in ``order``: the place of its task
        if pool is None and not stream.task_free:
            places = [stream.tasks.index(stream.task_of(step)) for step in range(len(stream))]
            self._owner = np.repeat(places, np.diff(stream._offsets))[order]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that are tested."""
        return self._tested

    def __getitem__(self, step: int) -> Batch:
        batch = super().__getitem__(step)
        if self._owner is None:
            return Batch(batch.x, batch.y)
        position = self._position(step)
        owners = self._owner[self._offsets[position] : self._offsets[position + 1]]
        return Batch(batch.x, batch.y, tasks=tuple(self._tested[owner] for owner in owners))

    def task_of(self, step: int) -> Task:
        """The last task: all have been met."""
        self._position(step)
        return self._tested[-1]


class Cursor:
    """Reads a stream from ``position`` on and refuses a second read of any example.

    A stream of several passes (``JointStream``) may hand an example out once in each.

    Args:
        stream: What to read.
        position: The first step to hand out. The examples of all earlier steps count as read.
    """

    def __init__(self, stream: Stream, position: int = 0) -> None:
        if not 0 <= position <= len(stream):
            raise InputError(f"position {position} is outside a stream of {len(stream)} batches")
        self._stream = stream
        self._position = position
        self._reads = np.zeros(stream.source_size, dtype=np.int64)
        for step in range(position):
            self._reads[stream.indices(step)] += 1

    @property
    def position(self) -> int:
        """The next step; all that a checkpoint has to keep."""
        return self._position

    @property
    def reads(self) -> int:
        """How many examples have been handed out, each counted as often as it was."""
        return int(self._reads.sum())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if self._position == len(self._stream):
            raise StopIteration
        return self.read(self._position)

    def read(self, step: int) -> Batch:
        """Hand out batch ``step`` and move behind it. Steps may be skipped, never repeated."""
        if not 0 <= step < len(self._stream):
            raise IndexError(f"batch {step} of a stream of {len(self._stream)} batches")
        if step < self._position:
            raise SecondRead(f"batch {step} was passed: the cursor is at {self._position}")
        rows = self._stream.indices(step)
        spent = self._reads[rows] >= self._stream.passes
        if spent.any() or len(np.unique(rows)) != len(rows):
            raise SecondRead(f"batch {step} repeats an example: the protocol is a single pass")
        self._reads[rows] += 1
        self._position = step + 1
        return self._stream[step]


def _frozen(array: Array) -> Array:
    """A read-only view; the caller's own array keeps its flags."""
    view = array.view()
    view.flags.writeable = False
    return view
