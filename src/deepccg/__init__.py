"""Online continual learning with Deep Class-Conditional Gaussians (Lee & Storkey, AISTATS 2024).

Names are imported when they are first used, so that ``import deepccg`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from deepccg.deprecation import install_moved_modules

if TYPE_CHECKING:
    from deepccg.core import (
        Batch,
        Diverged,
        InputError,
        Learner,
        StepInfo,
        Task,
        TaskRequired,
        TestSet,
    )
    from deepccg.estimator import DeepCCGClassifier
    from deepccg.estimator.river import RiverClassifier as RiverClassifier
    from deepccg.evaluation import evaluate
    from deepccg.experiment import RunConfig, RunResult, load, load_run, resume, run
    from deepccg.methods import ER, METHODS, SGD, DeepCCG, NetworkLearner
    from deepccg.networks import MLP, SlimResNet18
    from deepccg.streams import (
        Cursor,
        Dataset,
        Stream,
        disjoint,
        from_arrays,
        load_dataset,
        make_test_set,
        shifting_window,
    )

__version__ = "0.1.0"

_HOME = {
    "core": (
        "Batch",
        "Diverged",
        "InputError",
        "Learner",
        "StepInfo",
        "Task",
        "TaskRequired",
        "TestSet",
    ),
    "estimator": ("DeepCCGClassifier",),
    "estimator.river": ("RiverClassifier",),  # not in __all__: it needs an extra
    "evaluation": ("evaluate",),
    "experiment": ("RunConfig", "RunResult", "load", "load_run", "resume", "run"),
    "methods": ("ER", "METHODS", "SGD", "DeepCCG", "NetworkLearner"),
    "networks": ("MLP", "SlimResNet18"),
    "streams": (
        "Cursor",
        "Dataset",
        "Stream",
        "disjoint",
        "from_arrays",
        "load_dataset",
        "make_test_set",
        "shifting_window",
    ),
}
_ROOM_OF = {name: room for room, names in _HOME.items() for name in names}

__all__ = [
    "ER",
    "METHODS",
    "MLP",
    "SGD",
    "Batch",
    "Cursor",
    "Dataset",
    "DeepCCG",
    "DeepCCGClassifier",
    "Diverged",
    "InputError",
    "Learner",
    "NetworkLearner",
    "RunConfig",
    "RunResult",
    "SlimResNet18",
    "StepInfo",
    "Stream",
    "Task",
    "TaskRequired",
    "TestSet",
    "__version__",
    "disjoint",
    "evaluate",
    "from_arrays",
    "load",
    "load_dataset",
    "load_run",
    "make_test_set",
    "resume",
    "run",
    "shifting_window",
]


install_moved_modules()


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'deepccg' has no attribute {name!r}")
    return getattr(importlib.import_module(f"deepccg.{_ROOM_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOM_OF})
