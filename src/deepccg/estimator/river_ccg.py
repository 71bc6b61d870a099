"""The closed form with River's conventions."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from deepccg.estimator.ccg import CCGClassifier
from deepccg.estimator.river import RiverClassifier


class RiverCCGClassifier(RiverClassifier):
    """``CCGClassifier`` with River's conventions: closed form, no stored example, nothing to tune.

    Inputs need no scaling. A feature that is missing, ``None`` or NaN counts as 0. One that comes
    later is an input of its own, which was 0 in all examples before.

    Args:
        encoder: ``"auto"``, ``"identity"``, or a module ``[B, F] -> [B, D]``, which is copied and
            has no room for new features.
        encoder_params: For ``"auto"``: ``{"features": 500}``, how many cosines.
        class_prior: ``"uniform"``, or ``"observed"``: as probable as they were frequent.
        half_lives: For classes that change, in examples, such as ``(300, 50)``.
        forgettable: Whether a label can be forgotten; see ``CCGClassifier``.
        seed: Of the features.

    Attributes:
        classifier: The ``CCGClassifier`` underneath, with ``merge``, ``unlearn``, ``save`` and the
            rest; ``rows`` makes the arrays it takes.
        features: The names of its inputs.

    >>> model = RiverCCGClassifier(seed=0)
    >>> model.learn_one({"a": 1000.0, "b": 0.0}, "cow")
    >>> model.learn_one({"a": -1000.0, "b": 0.5}, "dog")
    >>> model.predict_one({"a": -900.0, "b": 0.5})
    'dog'
    """

    _kind = CCGClassifier
    method = "ccg"
    batch_size = 1

    def __init__(
        self,
        encoder: str | nn.Module = "auto",
        *,
        encoder_params: Mapping[str, Any] | None = None,
        class_prior: str = "uniform",
        half_lives: Sequence[float] | None = None,
        forgettable: bool = False,
        seed: int | None = None,
    ) -> None:
        self.encoder = encoder
        self.encoder_params = encoder_params
        self.class_prior = class_prior
        self.half_lives = half_lives
        self.forgettable = forgettable
        self.seed = seed
        self._begin(
            CCGClassifier(
                encoder,
                encoder_params=encoder_params,
                class_prior=class_prior,
                half_lives=half_lives,
                forgettable=forgettable,
                random_state=seed,
            )
        )

    def forget(self, cls: Any) -> None:
        """Remove a label, or several, as if no example had come with it; needs ``forgettable``."""
        self.classifier.forget(cls)
