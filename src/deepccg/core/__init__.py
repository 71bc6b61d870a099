"""The contract: batches, tasks, learners, and what they say when something is wrong."""

from deepccg.core.compile import default_cache_dir
from deepccg.core.config import Config, check_setting_sizes, validated
from deepccg.core.errors import (
    CannotWrite,
    DeepCCGError,
    Diverged,
    InputError,
    InUse,
    ProtocolViolation,
    SecondRead,
    StateMismatch,
    TaskRequired,
)
from deepccg.core.learner import Learner
from deepccg.core.seeding import derive_seed, make_generator
from deepccg.core.types import (
    Batch,
    Holdings,
    State,
    StepInfo,
    Task,
    TestSet,
    check_examples,
)

__all__ = [
    "Batch",
    "CannotWrite",
    "Config",
    "DeepCCGError",
    "Diverged",
    "Holdings",
    "InUse",
    "InputError",
    "Learner",
    "ProtocolViolation",
    "SecondRead",
    "State",
    "StateMismatch",
    "StepInfo",
    "Task",
    "TaskRequired",
    "TestSet",
    "check_examples",
    "check_setting_sizes",
    "default_cache_dir",
    "derive_seed",
    "make_generator",
    "validated",
]
