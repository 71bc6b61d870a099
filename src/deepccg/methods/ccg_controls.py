"""Simple controls on fixed features: CCG with the fields that make it a published method."""

from deepccg.methods.ccg import CCG, CCGConfig, Shrinkage


class NCMConfig(CCGConfig):
    """Fields of the nearest class mean."""

    shrinkage: Shrinkage = 1.0


class NCM(CCG):
    """Nearest class mean: CCG without a covariance, by default on pixels (``network.kind``)."""

    Config = NCMConfig


class SLDAConfig(CCGConfig):
    """Fields of streaming linear discriminant analysis."""

    shrinkage: Shrinkage = 1e-4


class SLDA(CCG):
    """Streaming linear discriminant analysis: CCG with the shrinkage of its paper.

    Reference: Hayes & Kanan, "Lifelong machine learning with deep streaming linear discriminant
    analysis", CVPRW 2020.
    """

    Config = SLDAConfig


class RanDumb(CCG):
    """RanDumb: CCG on random Fourier features of the input (``network.kind=fourier``).

    Reference: Prabhu et al., "RanDumb: random representations outperform online continually learned
    representations", NeurIPS 2024.
    """
