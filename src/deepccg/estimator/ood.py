"""How unlike anything learned an input is: the predictive density of its embedding.

To tell classes apart, the model takes each for a ball of the same size (Eq. 2). To tell strangers
it is not enough: they differ from what is known most of all in directions in which known examples
hardly vary. So the same density is taken here with the covariance that the stored examples have
within their classes.
"""

import torch
from sklearn.covariance import empirical_covariance, ledoit_wolf_shrinkage, shrunk_covariance
from torch import Tensor

from deepccg.gaussian import log_predictive_density, squared_distances
from deepccg.methods.deepccg import DeepCCG

LEAST_SHRINKAGE = 0.01  # two stored examples tell one direction, and nothing of how uncertain it is


@torch.no_grad()
def strangeness(learner: DeepCCG, x: Tensor) -> Tensor:
    """Minus the log predictive density of each embedding, all classes equally likely, ``[N]``."""
    posterior, variance = learner.current_classifier().posterior, learner.config.variance
    factor = torch.linalg.cholesky(_covariance(learner))
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


def _covariance(learner: DeepCCG) -> Tensor:
    """Of stored embeddings within their classes, ``[D, D]``: pooled, and shrunk to a multiple of I.

    A few hundred examples do not tell a covariance in as many dimensions; how far it is to be
    shrunk they tell themselves (Ledoit & Wolf, 2004). Where they tell nothing, no class having
    two different ones, it is the model's own.
    """
    belief, store = learner.current_classifier(), learner.memory
    deviation = learner.embed_shaped(store.x).double() - belief.posterior.mean.double()[store.y]
    freedom = store.size - int((belief.posterior.count > 0).sum())
    largest = deviation.abs().max()
    if freedom > 0 and largest > 0:
        own = (deviation / largest).cpu().numpy()  # its fourth powers are numbers, too
        shrinkage = ledoit_wolf_shrinkage(own, assume_centered=True)
        shrunk = shrunk_covariance(
            empirical_covariance(own, assume_centered=True), max(shrinkage, LEAST_SHRINKAGE)
        )
        covariance = torch.from_numpy(shrunk).to(deviation) * largest**2 * (store.size / freedom)
        if bool(covariance.diagonal().min() > 0):
            return covariance
    return torch.eye(learner.dim).to(deviation) / belief.scale.double().square()
