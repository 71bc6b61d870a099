"""One file per method; ``METHODS`` is the one table of names."""

from deepccg.core import Learner
from deepccg.methods.base import NetworkLearner
from deepccg.methods.deepccg import DeepCCG
from deepccg.methods.er import ER
from deepccg.methods.multi_task import MultiTask
from deepccg.methods.sgd import SGD

METHODS: dict[str, type[Learner]] = {
    "deepccg": DeepCCG,
    "er": ER,
    "multi-task": MultiTask,
    "sgd": SGD,
}

__all__ = ["ER", "METHODS", "SGD", "DeepCCG", "MultiTask", "NetworkLearner"]
