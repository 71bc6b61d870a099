"""One file per method; ``METHODS`` is the one table of names."""

from deepccg.core import Learner
from deepccg.methods.base import NetworkLearner
from deepccg.methods.deepccg import DeepCCG
from deepccg.methods.er import ER
from deepccg.methods.sgd import SGD

METHODS: dict[str, type[Learner]] = {
    "deepccg": DeepCCG,
    "er": ER,
    "sgd": SGD,
}

__all__ = ["ER", "METHODS", "SGD", "DeepCCG", "NetworkLearner"]
