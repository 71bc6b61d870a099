"""Out-of-distribution scores: minus the log predictive density of an embedding.

To separate classes, the model gives each the same spherical covariance (Eq. 2). Unknown inputs
differ from known ones above all in directions in which known examples hardly vary, so the density
here has the covariance that the stored examples have within their classes.
"""

import torch
from sklearn.covariance import empirical_covariance, ledoit_wolf_shrinkage, shrunk_covariance
from torch import Tensor

from deepccg.gaussian import log_predictive_density, squared_distances
from deepccg.learners.base import predicting
from deepccg.methods.deepccg import DeepCCG

MIN_SHRINKAGE = 0.01  # two stored examples give one direction, and not how uncertain it is


@predicting
def ood_scores(learner: DeepCCG, x: Tensor) -> Tensor:
    """Return minus the log density of each embedding, all classes equally likely, ``[N]``."""
    posterior, variance = learner.current_classifier().posterior, learner.config.variance
    factor = torch.linalg.cholesky(_within_class_covariance(learner))
    z, mean = (
        torch.linalg.solve_triangular(factor, part.double().T, upper=False).T
        for part in (learner.embed_shaped(learner.as_input(x)), posterior.mean)
    )
    mask = torch.ones(len(z), len(mean), dtype=torch.bool, device=z.device)
    count = posterior.count.double()
    density = log_predictive_density(squared_distances(z, mean), count, mask, learner.dim, variance)
    known = (count > 0).sum().double()
    score: Tensor = known.log() - torch.logsumexp(density, dim=1) + factor.diagonal().log().sum()
    return score


def _within_class_covariance(learner: DeepCCG) -> Tensor:
    """Return the pooled covariance of stored embeddings, ``[D, D]``, shrunk to a multiple of I.

    A few hundred examples do not determine a covariance in as many dimensions; how far it is
    shrunk they determine themselves (Ledoit & Wolf, 2004). Where no class has two different
    examples, it is the model's own.
    """
    classifier, store = learner.current_classifier(), learner.memory
    deviation = learner.embed_shaped(store.x).double() - classifier.posterior.mean.double()[store.y]
    freedom = store.size - int((classifier.posterior.count > 0).sum())
    largest = deviation.abs().max()
    if freedom > 0 and largest > 0:
        scaled = (deviation / largest).cpu().numpy()  # so that fourth powers do not overflow
        shrinkage = ledoit_wolf_shrinkage(scaled, assume_centered=True)
        shrunk = shrunk_covariance(
            empirical_covariance(scaled, assume_centered=True), max(shrinkage, MIN_SHRINKAGE)
        )
        covariance = torch.from_numpy(shrunk).to(deviation) * largest**2 * (store.size / freedom)
        if bool(covariance.diagonal().min() > 0):
            return covariance
    return torch.eye(learner.dim).to(deviation) / classifier.scale.double().square()
