"""The classifiers for practitioners: scikit-learn's conventions around any method."""

from deepccg.estimator.advice import DeepCCGWarning
from deepccg.estimator.ccg import CCGClassifier
from deepccg.estimator.classifier import DeepCCGClassifier

__all__ = ["CCGClassifier", "DeepCCGClassifier", "DeepCCGWarning"]
