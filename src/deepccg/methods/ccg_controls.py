"""Simple controls on fixed features: CCG with the fields that make it a published method."""

from deepccg.methods.ccg import CCG, CCGConfig, Covariance, PriorStrength


class NCMConfig(CCGConfig):
    """Fields of the nearest class mean."""

    covariance: Covariance = "isotropic"


class NCM(CCG):
    """Nearest class mean: CCG without a covariance, by default on pixels (``network.kind``).

    Reference: Mensink et al., "Distance-based image classification: generalizing to new classes at
    near-zero cost", TPAMI 2013.
    """

    Config = NCMConfig


class SLDAConfig(CCGConfig):
    """Fields of streaming linear discriminant analysis."""

    prior_strength: PriorStrength = 1.0


class SLDA(CCG):
    """Streaming linear discriminant analysis: CCG with a covariance that is hardly shrunk.

    Reference: Hayes & Kanan, "Lifelong machine learning with deep streaming linear discriminant
    analysis", CVPRW 2020.
    """

    Config = SLDAConfig


class RanDumb(CCG):
    """RanDumb: CCG on random Fourier features of the input (``network.kind=fourier``).

    Reference: Prabhu et al., "RanDumb: random representations outperform online continually learned
    representations", NeurIPS 2024.
    """
