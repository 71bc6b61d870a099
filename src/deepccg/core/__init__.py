"""The contract: batches, tasks, learners, and what they say when something is wrong."""

from deepccg.core.cache_dir import default_cache_dir
from deepccg.core.config import Config, is_utf8, validated
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
from deepccg.core.input_checks import (
    InputForm,
    all_finite,
    has_finite_squares,
    kind_of,
    require_finite,
)
from deepccg.core.learner import Learner
from deepccg.core.seeding import derive_seed, make_generator
from deepccg.core.suggestions import closest, did_you_mean
from deepccg.core.types import Batch, MemoryUsage, State, StepInfo, Task, TestSet

__all__ = [
    "Batch", "CannotWrite", "Config", "DeepCCGError", "Diverged", "InUse", "InputError",
    "InputForm", "Learner", "MemoryUsage", "ProtocolViolation", "SecondRead", "State",
    "StateMismatch", "StepInfo", "Task", "TaskRequired", "TestSet", "all_finite", "closest",
    "default_cache_dir", "derive_seed", "did_you_mean", "has_finite_squares", "is_utf8", "kind_of",
    "make_generator", "require_finite", "validated",
]  # fmt: skip
