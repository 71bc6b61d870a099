"""The closed form with scikit-learn's conventions: what to take first."""

import copy
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self, cast

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from deepccg.core import Batch, InputError, State
from deepccg.estimator.advice import advise
from deepccg.estimator.base import StreamClassifier
from deepccg.estimator.encoders import chosen_encoder
from deepccg.estimator.inputs import (
    check_inputs,
    check_labels,
    check_prior,
    counted,
    merge_columns,
)
from deepccg.estimator.labels import LabelTable
from deepccg.estimator.persistence import transaction
from deepccg.estimator.plain_labels import Labels, plain_labels
from deepccg.estimator.spec import LearnerSpec
from deepccg.estimator.turns import turns
from deepccg.estimator.unlearning import relabelled, without_classes
from deepccg.methods.ccg import CCG
from deepccg.networks import is_named_encoder

WAITING = 1000  # examples that may wait until the features are fitted; a hundred do, by weight
AT_ONCE = 10_000  # examples whose features are computed together


class CCGClassifier(StreamClassifier):
    """Class-conditional Gaussians in closed form on features that do not move.

    One pass, no stored example, no gradient, nothing to tune: the order of the examples does
    not matter, nor how many come in a call. New classes need no declaration.

    The features are fitted, without labels, to the first examples: those of ``fit``, or of the
    first calls of ``partial_fit`` until there are a hundred. These wait until then; predictions
    before that rest on the ones that wait.

    Args:
        encoder: ``"auto"``: vectors are standardised and have random cosines beside them, images
            have patches, embeddings of unit length stay as they are. ``"identity"``: the input
            itself. Or a module ``[B, F] -> [B, D]`` or ``[B, C, H, W] -> [B, D]``, which is copied
            and not trained: a ``PretrainedEncoder``, with its preprocessing, or any other. Or
            ``"timm:NAME"`` or ``"hf:NAME"``, of images, where these libraries are installed.
        encoder_params: For ``"auto"``: ``{"features": 500}``, how many cosines; ``{"filters": 200,
            "mirror": False}``, of patches. More are slower, and better with many examples.
        class_prior: ``"uniform"``, or ``"observed"``: classes are as probable as they were
            frequent.
        half_lives: For classes that change: statistics that forget half of what they know in so
            many examples, such as ``(300, 50)``, each trusted as it foretells what comes.
        forgettable: Whether a class can be forgotten without its examples at hand: what it adds to
            the covariance is then kept by itself, as many numbers as all have together.
        random_state: Seeds the features.

    Attributes:
        classes_: The labels known, sorted; declared ones included.
        n_features_in_: How many numbers, or columns of a table, one input has.
        feature_names_in_: Names of the columns, where a data frame with names was learned.
        input_shape_: ``(F,)``, or ``(H, W, C)`` for images.
        learner_: The ``deepccg.methods.CCG`` underneath.

    >>> import numpy as np
    >>> model = CCGClassifier(random_state=0)
    >>> model = model.partial_fit(np.array([[0.0, 1000.0], [1.0, 0.0]]), ["cow", "dog"])
    >>> model = model.partial_fit(np.array([[-1.0, 1000.0]]), ["ant"])
    >>> model.classes_.tolist(), model.predict([[-1.0, 900.0]]).tolist()
    (['ant', 'cow', 'dog'], ['ant'])
    """

    learner_: CCG

    def __init__(
        self,
        encoder: str | nn.Module = "auto",
        *,
        encoder_params: Mapping[str, Any] | None = None,
        class_prior: str = "uniform",
        half_lives: Sequence[float] | None = None,
        forgettable: bool = False,
        random_state: Any = None,
    ) -> None:
        self.encoder = encoder
        self.encoder_params = encoder_params
        self.class_prior = class_prior
        self.half_lives = half_lives
        self.forgettable = forgettable
        self.random_state = random_state

    @classmethod
    def spec_fields(cls, params: Mapping[str, Any]) -> dict[str, Any]:
        """See ``StreamClassifier``."""
        encoder, half_lives = params["encoder"], params["half_lives"]
        named = encoder in ("auto", "identity") if isinstance(encoder, str) else False
        if not (named or isinstance(encoder, nn.Module) or is_named_encoder(encoder)):
            raise InputError(
                f"encoder is {encoder!r}: choose auto, identity, timm:NAME or hf:NAME, or give a "
                f"module"
            )
        check_prior(params["class_prior"])
        if half_lives and params["forgettable"]:
            raise InputError("half_lives forget by themselves: set them, or forgettable, not both")
        listed = list(half_lives) if isinstance(half_lives, Sequence) else half_lives or []
        return {
            **params,
            "method": "ccg",
            "method_params": {"class_prior": params["class_prior"], "half_lives": listed},
            "memory": WAITING,
            "device": "cpu",
            "standardize": False,
        }

    def first_spec(self, x: Tensor, declared: int) -> LearnerSpec:
        """See ``StreamClassifier``."""
        spec = super().first_spec(x, declared)
        auto = spec.encoder == "auto"
        return dataclasses.replace(spec, encoder=chosen_encoder(x)) if auto else spec

    @classmethod
    def spec_params(cls, spec: LearnerSpec, fields: Iterable[str]) -> dict[str, Any]:
        """See ``StreamClassifier``."""
        found = super().spec_params(spec, fields)
        own: dict[str, Any] = found.pop("method_params", {})
        return {**found, **own}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Forget everything and learn ``X [N, ...]``, ``y [N]``; see ``partial_fit``."""
        with transaction(self):
            self.__dict__.pop("learner_", None)
            self.partial_fit(X, y, sample_weight=sample_weight)
            self.learner_.stop_waiting()
        return self

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn further examples; new classes need no declaration.

        Args:
            X: Vectors ``[N, F]`` or images ``[N, H, W, C]``.
            y: Their labels ``[N]``.
            classes: Labels that will come: they are in ``classes_`` from now on, with probability 0
                until they do.
            sample_weight: How often each counts, ``[N]``, from 0 up: 2 is as if it came twice, 0 as
                if it had not come.
        """
        with transaction(self):
            reset = "learner_" not in vars(self)
            x, labels, weight = self._examples(X, y, sample_weight, reset, learn=True)
            table, codes, declared, _ = self._learn_labels(labels, x, classes)
            if bool(self.forgettable) != self.learner_.forgettable:
                raise InputError("forgettable was set after learning began: start again with fit")
            with self.learner_.transaction():
                if classes is not None:
                    self.learner_.class_table.declare(range(declared))
                if weight is None and not self.learner_.ready:
                    weight = x.new_ones(len(x), dtype=torch.float64)  # others may come with some
                for begin in range(0, len(x), AT_ONCE):
                    rows = slice(begin, begin + AT_ONCE)
                    batch = Batch(x[rows], torch.from_numpy(codes[rows]))
                    self.learner_.learn(batch, None if weight is None else weight[rows])
                advise(self, x)
            self._labels, self.classes_ = table, table.labels
        return self

    def merge(self, other: "CCGClassifier") -> Self:
        """Add everything that ``other`` has learned, as if this classifier had learned it, too.

        Both must have the same parameters and the same features: ``empty_copy`` gives such a one.
        """
        if other is self or type(other) is not type(self):
            raise InputError("merge takes another CCGClassifier")
        with turns(other):
            check_is_fitted(other)
            state, labels, spec = other.learner_.state_dict(), other._labels, other._spec
            columns = vars(other).get("_columns")
        with transaction(self):
            check_is_fitted(self)
            merge_columns(self, columns)
            table = self._labels.extended(labels.labels[labels.codes.argsort()])
            codes = table.encode(labels.labels)
            new_code = dict(zip(labels.codes.tolist(), codes.tolist(), strict=True))
            theirs = spec.renumbered(new_code).build(relabelled(state, new_code))
            with self.learner_.transaction(often=False):
                self.learner_.merge(cast(CCG, theirs))
            self._labels, self.classes_ = table, table.labels
        return self

    def empty_copy(self) -> Self:
        """Return a classifier with these features that has learned nothing, to ``merge`` later."""
        copied = copy.deepcopy(self)
        check_is_fitted(copied)
        if not copied.learner_.ready:
            raise InputError("the features are not fitted yet: learn a hundred examples first")
        network = copied.learner_.network.state_dict()
        copied._rebuild(copied._spec.renumbered({}))
        copied.learner_.network.load_state_dict(network)
        copied._labels = LabelTable.empty()
        copied.classes_ = copied._labels.labels
        return copied

    def unlearn(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Take out examples that were learned, as if they had never come.

        The features keep the scale they were fitted to. A class whose examples are all taken out
        is gone. That the examples were learned, with these weights, cannot be checked in full:
        they are not stored.
        """
        with transaction(self):
            check_is_fitted(self)
            x, labels, weight = self._examples(X, y, sample_weight)
            codes = self._labels.encode(labels)
            with self.learner_.transaction(often=False):
                self.learner_.unlearn(x, torch.from_numpy(codes), weight)
                seen = self.learner_.class_table.seen.tolist()
                gone = [code for code, n in zip(self.learner_.classes, seen, strict=True) if not n]
                self._drop(set(gone) & set(codes.tolist()))
        return self

    def forget(self, cls: Any) -> Self:
        """Remove a label, or several, as if no example had come with it; needs ``forgettable``.

        The features keep the scale they were fitted to.
        """
        with transaction(self):
            check_is_fitted(self)
            codes = self._labels.encode(plain_labels(cls)).tolist()
            with self.learner_.transaction(often=False):
                for code in codes:
                    self.learner_.forget(code)
                self._drop(codes)
        return self

    def _drop(self, codes: Collection[int]) -> None:
        """Remove classes of which no example is left."""
        if codes:
            kept = self._labels.without(codes)
            state = without_classes(self.learner_.state_dict(), kept.new_code, kept.new_task)
            self._labels, self.classes_ = kept.table, kept.table.labels
            self._rebuild(self._spec.renumbered(kept.new_code), state)

    def _examples(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any,
        reset: bool = False,
        learn: bool = False,
    ) -> tuple[Tensor, Labels, Tensor | None]:
        """Return inputs, labels and weights of the examples that count."""
        X, y, weight = counted(X, y, sample_weight)  # noqa: N806
        x = check_inputs(self, X, reset=reset, learn=learn)
        labels = check_labels(y, x)
        return x.double() if x.ndim == 2 else x, labels, weight

    def _rebuild(self, spec: LearnerSpec, state: State | None = None) -> None:
        super()._rebuild(spec, state)
        if self.forgettable and state is None:
            self.learner_.make_forgettable()
        self.learner_.follow()
