"""DeepCCG's classifier as a readout of any method's network, derived from the method's memory."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from deepccg.core import Task
from deepccg.gaussian import GaussianClassifier, class_posterior, fitted_scale
from deepccg.learners.readout import class_conditional_readout, combine

if TYPE_CHECKING:
    from deepccg.learners.base import NetworkLearner


class Readout(Protocol):
    """What turns embeddings into predictions; a learner is its own unless the recipe says else."""

    def scores(self, x: Tensor) -> Tensor:
        """See ``NetworkLearner``."""

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """See ``NetworkLearner``."""

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """See ``NetworkLearner``."""

    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""


class MemoryReadout:
    """Classifies any learner's embeddings by DeepCCG's posterior predictive given its memory.

    One variance for all classes, and a scale fitted to the memory's spread: DeepCCG's defaults.
    The methods are those of ``Readout``, called in the learner's ``prediction_mode``.
    """

    def __init__(self, learner: "NetworkLearner[Any]") -> None:
        self._learner = learner
        self._classifier: GaussianClassifier | None = None

    def forget(self) -> None:
        """Derive the classifier again when it is next asked for."""
        self._classifier = None

    def classifier(self) -> GaussianClassifier:
        """The classifier given all of memory under the present network."""
        if self._classifier is None:
            learner, memory = self._learner, self._learner.memory
            z = learner.embed_stored(torch.arange(memory.size, device=learner.device))
            posterior = class_posterior(z, memory.y, len(learner.class_table))
            scale = fitted_scale(z, memory.y, posterior)
            self._classifier = GaussianClassifier(posterior, scale, "shared")
        return self._classifier

    def scores(self, x: Tensor) -> Tensor:
        """Squared distances to the class means, scaled, ``[B, C]``."""
        return self.classifier().class_scores(self._learner.embed(x))

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Log predictive densities of the allowed classes."""
        return self.classifier().log_density(scores, mask.expand_as(scores))

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """The same, of embeddings."""
        del task
        classifier = self.classifier()

        def density(z: Tensor) -> Tensor:
            scores = classifier.class_scores(z)
            return classifier.log_density(scores, mask.expand_as(scores))

        return density

    def inference_module(self) -> nn.Module:
        """The same, of inputs."""
        learner = self._learner
        with torch.no_grad(), learner.prediction_mode():
            readout = class_conditional_readout(*self.classifier())
            return combine(learner.predicting_embedding(), readout, learner.dtype)
