"""All tasks at once: the pooled, shuffled data that an offline reference learns from."""

import numpy as np

from deepccg.core import Batch, InputError, Task, derive_seed
from deepccg.streams.stream import IntArray, Stream

MOST_READS = 10**8  # their order is drawn beforehand and kept


class JointStream(Stream):
    """A stream's examples, pooled and shuffled, read ``passes`` times: offline, not online.

    A learner is tested on the same tasks: ``tasks`` and ``classes`` are those of ``stream``.
    Every batch counts as one of the last task, since by then all tasks have been met.

    Args:
        stream: The online stream whose tasks are tested.
        pool: Where the examples come from; ``None``: from ``stream``, and each keeps its own task
            (``Batch.tasks``). Examples of another pool have no task.
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
        everything = Task(0, source.classes)
        arrays = (source._x, source._y, source._rows[order], offsets)
        super().__init__(*arrays, [everything] * len(starts))
        self.passes = passes
        self._tested = stream.tasks
        self._owner: IntArray | None = None if pool is not None else _owners(stream)[order]

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


def _owners(stream: Stream) -> IntArray:
    """The place of each example's task among ``stream.tasks``, ``[E]``."""
    place = {task.id: k for k, task in enumerate(stream.tasks)}
    batches = [place[stream.task_of(step).id] for step in range(len(stream))]
    sizes = [len(stream.indices(step)) for step in range(len(stream))]
    return np.repeat(np.array(batches, dtype=np.int64), sizes)
