"""The contract every method obeys."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from deepccg.core.config import Config as MethodConfig
from deepccg.core.errors import InputError
from deepccg.core.types import Batch, MemoryUsage, State, StepInfo, Task
from deepccg.deprecation import renamed_hooks, warn_renamed


class Learner(ABC):
    """A classifier that learns online, one batch at a time, and can be asked at any moment.

    A learner owns its network, its optimiser, its memory and its random generator. Classes need
    no declaration: outputs are added in order of first appearance.

    Args:
        network: The embedding, ``[B, ...] -> [B, D]``, with an integer attribute ``dim`` = D.
        config: The method's own fields; ``None`` takes their defaults.
        memory: How many examples may be stored, in total.
        classes: Labels known in advance, if any; their outputs exist from the start.
        seed: Seeds the learner's private generator.
    """

    Config: ClassVar[type[MethodConfig]]
    _renamed: ClassVar[dict[str, str]] = {"holdings": "memory_usage"}

    def __init_subclass__(cls, **fields: Any) -> None:
        super().__init_subclass__(**fields)
        renamed_hooks(cls, cls._renamed)

    @abstractmethod
    def __init__(
        self,
        network: nn.Module,
        config: MethodConfig | None = None,
        *,
        memory: int = 0,
        classes: Sequence[int] = (),
        seed: int = 0,
    ) -> None: ...

    @property
    @abstractmethod
    def classes(self) -> tuple[int, ...]:
        """The label of each output column, in order of first appearance."""

    @abstractmethod
    def learn(self, batch: Batch) -> StepInfo:
        """Take exactly one online step. The batch is not modified."""

    @abstractmethod
    def predict_logits(self, x: Tensor, task: Task | None = None) -> Tensor:
        """Scores ``[B, C]``, -inf outside the allowed classes, without side effects.

        Columns are ``columns(task)``. ``task=None`` allows all classes seen; a task allows those
        of its classes that have been seen. If none of them has examples yet the prediction is
        uniform over the allowed classes; with no class at all it is an ``InputError``. A method
        that cannot predict without a task raises ``TaskRequired``.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """Everything the next step depends on: network, memory, counters, generator."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Continue from ``state`` bit for bit, or raise ``StateMismatch`` and change nothing."""

    @classmethod
    def largest_dim(cls, config: MethodConfig, memory_bytes: int, classes: int) -> int | None:
        """The largest embedding whose statistics of ``classes`` classes fit into so many bytes.

        ``None`` for methods that keep no statistics of everything seen: any embedding will do.
        """
        del config, memory_bytes, classes
        return None

    @classmethod
    def needs_tasks(cls, config: MethodConfig) -> bool:
        """Whether nothing of the method is left, or no prediction, where batches have no task."""
        del config
        return False

    def memory_usage(self) -> MemoryUsage:
        """What is kept of the past, in examples and bytes."""
        return MemoryUsage()

    def holdings(self) -> MemoryUsage:
        """Deprecated: ``memory_usage``."""
        warn_renamed("holdings()", "memory_usage()")
        return self.memory_usage()

    def columns(self, task: Task | None = None) -> tuple[int, ...]:
        """Labels of the columns of ``predict_logits``: ``classes``, then what only a task names."""
        known = self.classes
        if task is None:
            return known
        return known + tuple(c for c in task.classes if c not in known)

    def predict_logits_each(self, x: Tensor, tasks: Sequence[Task | None]) -> list[Tensor]:
        """``predict_logits`` under several tasks. Methods that can, embed ``x`` only once."""
        return [self.predict_logits(x, task) for task in tasks]

    def representation(self, x: Tensor, task: Task | None = None) -> Tensor:
        """Embeddings ``[B, D]`` of ``x`` as ``predict_logits`` classifies them under ``task``.

        Only recording representation shift asks for this and for ``classifier``.
        """
        del x, task
        raise _in_one_piece(self)

    def classifier(self, task: Task | None = None) -> Callable[[Tensor], Tensor]:
        """The classifier as it is now, ``[B, D] -> [B, C]``; no later step changes it.

        ``classifier(task)(representation(x, task))`` is ``predict_logits(x, task)``.
        """
        del task
        raise _in_one_piece(self)

    def predict_proba(self, x: Tensor, task: Task | None = None) -> Tensor:
        """Class probabilities ``[B, C]`` over ``columns(task)``."""
        return torch.softmax(self.predict_logits(x, task), dim=1)

    def predict(self, x: Tensor, task: Task | None = None) -> Tensor:
        """The most probable label of each example, ``[B]``."""
        best = self.predict_logits(x, task).argmax(dim=1)
        return torch.tensor(self.columns(task), dtype=torch.int64)[best.cpu()]


def _in_one_piece(learner: Learner) -> InputError:
    return InputError(
        f"{type(learner).__name__} does not separate its embedding from its classifier (methods "
        f"representation and classifier): its representation shift cannot be recorded"
    )
