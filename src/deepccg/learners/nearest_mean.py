"""The nearest mean of stored examples, by embeddings of length one, as a classifier."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepccg.gaussian import class_posterior, squared_distances
from deepccg.learners.readout import GaussianReadout, only_known


@dataclass(frozen=True)
class ClassMeans:
    """A mean of length one for each class, ``[C, D]``, and which classes have one, ``[C]``."""

    mean: Tensor
    known: Tensor

    @classmethod
    def of(cls, embedding: Tensor, y: Tensor, classes: int) -> "ClassMeans":
        """Means of embeddings ``[M, D]``, each made of length one first, of class columns ``y``."""
        found = class_posterior(F.normalize(embedding, dim=1), y, classes)
        return cls(F.normalize(found.mean, dim=1), found.count > 0)

    def scores(self, z: Tensor) -> Tensor:
        """``-|z/|z| - mean_c|^2``; -inf for classes without a mean, ``[B, D] -> [B, C]``."""
        near = -squared_distances(F.normalize(z, dim=1), self.mean)
        return near.masked_fill(~self.known, -math.inf)

    def readout(self) -> nn.Module:
        """The same for embeddings of length one, as a module for export."""
        constant = only_known(torch.zeros(len(self.mean)), self.known.cpu())
        return GaussianReadout(self.mean, torch.full_like(self.mean, 2.0), constant)
