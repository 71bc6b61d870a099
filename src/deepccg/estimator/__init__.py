"""The classifier for practitioners: scikit-learn's conventions around any method."""

from deepccg.estimator.classifier import DeepCCGClassifier

__all__ = ["DeepCCGClassifier"]
