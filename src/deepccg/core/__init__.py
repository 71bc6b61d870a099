"""The contract: batches, tasks, learners, and what they say when something is wrong."""

from deepccg.core.config import Config
from deepccg.core.errors import (
    DeepCCGError,
    Diverged,
    InputError,
    SecondRead,
    StateMismatch,
    TaskRequired,
)
from deepccg.core.learner import Learner
from deepccg.core.seeding import derive_seed, make_generator
from deepccg.core.types import Batch, Holdings, State, StepInfo, Task, TestSet

__all__ = [
    "Batch",
    "Config",
    "DeepCCGError",
    "Diverged",
    "Holdings",
    "InputError",
    "Learner",
    "SecondRead",
    "State",
    "StateMismatch",
    "StepInfo",
    "Task",
    "TaskRequired",
    "TestSet",
    "derive_seed",
    "make_generator",
]
