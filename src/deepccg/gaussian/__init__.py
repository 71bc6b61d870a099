"""The class-conditional Gaussian classifier as pure functions of tensors.

Equation numbers are those of Lee & Storkey (AISTATS 2024). Shapes: ``B`` examples, ``C`` classes,
``D`` dimensions, ``K`` classes being reselected, ``N`` candidates of a class.
"""

from deepccg.gaussian import kernels
from deepccg.gaussian.class_statistics import ClassStatistics
from deepccg.gaussian.embedding_drift import MeansOfOthers, estimate_embeddings, means_of_others
from deepccg.gaussian.packed import PackedSymmetric, packed_size
from deepccg.gaussian.posterior import (
    GaussianClassifier,
    Posterior,
    Variance,
    class_posterior,
    distances_filled_from_batch,
    fitted_scale,
    inflate_variance,
    leave_one_out_distances,
    log_conditional_marginal_likelihood,
    log_predictive_density,
    squared_distances,
)
from deepccg.gaussian.prototypes import (
    Prototypes,
    log_class_predictive,
    log_prototype_predictive,
    update_prototypes,
)
from deepccg.gaussian.running import FrozenClassifier, RunningClassifier
from deepccg.gaussian.selection import (
    Candidates,
    LassoConfig,
    greedy_selection,
    lasso_selection,
    selection_objective,
    swap_selection,
    target_weights,
)
from deepccg.gaussian.shared_covariance import (
    ClassScores,
    likeliest_strength,
    log_marginal_likelihood,
)

__all__ = [
    "Candidates",
    "ClassScores",
    "ClassStatistics",
    "FrozenClassifier",
    "GaussianClassifier",
    "LassoConfig",
    "MeansOfOthers",
    "PackedSymmetric",
    "Posterior",
    "Prototypes",
    "RunningClassifier",
    "Variance",
    "class_posterior",
    "distances_filled_from_batch",
    "estimate_embeddings",
    "fitted_scale",
    "greedy_selection",
    "inflate_variance",
    "kernels",
    "lasso_selection",
    "leave_one_out_distances",
    "likeliest_strength",
    "log_class_predictive",
    "log_conditional_marginal_likelihood",
    "log_marginal_likelihood",
    "log_predictive_density",
    "log_prototype_predictive",
    "means_of_others",
    "packed_size",
    "selection_objective",
    "squared_distances",
    "swap_selection",
    "target_weights",
    "update_prototypes",
]  # fmt: skip
