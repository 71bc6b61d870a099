"""A classifier that keeps learning, with scikit-learn's conventions."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from deepccg.core import Batch, InputError, make_generator
from deepccg.deprecation import warn_renamed
from deepccg.estimator import inspection
from deepccg.estimator.advice import advise
from deepccg.estimator.base import StreamClassifier
from deepccg.estimator.features import FloatArray
from deepccg.estimator.inputs import check_count, check_inputs, check_labels, check_prior
from deepccg.estimator.inspection import RepresentationShift, ShiftMonitor, Table
from deepccg.estimator.labels import AnyTask, LabelTable
from deepccg.estimator.ood import ood_scores
from deepccg.estimator.persistence import transaction
from deepccg.estimator.spec import LearnerSpec, learner_class, observe, only_deepccg
from deepccg.estimator.turns import turns
from deepccg.estimator.unlearning import unlearn, without_memory
from deepccg.methods.deepccg import DeepCCG
from deepccg.methods.protocl import ProtoCL

COMMON_FIELDS = ("lr", "replay", "repeats")  # of methods, that are parameters by themselves
STEP = 10  # most rows of a step, if the user does not say
FIT_BATCH, FIT_STEPS = 32, 10  # of ``fit``: most rows per step, fewest steps per pass


class DeepCCGClassifier(StreamClassifier):
    """A classifier that keeps learning from a stream, new classes included, in fixed memory.

    ``partial_fit`` takes one step for ten rows and may bring classes that were never declared.
    ``fit`` starts over and makes ``epochs`` shuffled passes; with a method whose classifier is
    derived from memory (DeepCCG), each pass refills the memory, so that it holds no example twice.

    Args:
        method: A name of ``deepccg.METHODS``.
        lr: Step size of the optimiser; ``None`` leaves the method's own.
        replay: Stored examples that each step trains on, too; ``None`` leaves the method's own, or
            60 with DeepCCG on vectors.
        repeats: Optimiser steps per batch, each with another replay; ``None`` is one, or two with
            DeepCCG on vectors.
        method_params: Its other fields; ``deepccg methods NAME`` lists them. DeepCCG
            has ``renewal="errors"`` by default, so that classes that change are followed, and on
            vectors ``replay_sampling="balanced"``.
        encoder: ``"mlp"`` for vectors, ``"resnet"`` for images, ``"identity"`` for embeddings
            computed elsewhere, ``"auto"`` to choose between the first two by the data's shape;
            ``"patches"`` (images), ``"fourier"`` (vectors) or ``"fixed"`` (either) for features
            that are fitted to the first batch and never change; or a module ``[B, F] -> [B, D]``
            or ``[B, C, H, W] -> [B, D]``, which is copied. Parameters that do not require a
            gradient stay as they are; a ``PretrainedEncoder``, with its preprocessing, never
            changes. Or ``"timm:NAME"`` or ``"hf:NAME"``, of images, where these are installed.
        encoder_params: Fields of a named encoder: ``{"layers": (100, 80)}``, ``{"width": 10}``.
        class_prior: ``"uniform"``, or ``"observed"``: classes are as probable as they were
            frequent, for data in which rare ones stay rare. It may be set at any time.
        memory: How many examples may be stored, in total, shared among the classes.
        batch_size: Rows per optimiser step, in the order given. ``None`` makes steps of at most
            ten rows, shuffled, of a ``partial_fit`` call, and of 32, or a tenth of the data where
            that is less, of ``fit``.
        epochs: Passes that ``fit`` makes.
        device: Where the learner lives, as PyTorch names it.
        standardize: Whether ``"mlp"`` sees vectors in units of their running mean and deviation;
            what is stored stays as it came. Other encoders take their inputs as they are.
        random_state: Seeds the encoder, the order of ``fit`` and the learner's draws.

    Attributes:
        classes_: The labels known, sorted; declared ones included.
        n_features_in_: How many numbers, or columns of a table, one input has.
        feature_names_in_: Names of the columns, where a data frame with names was learned.
        input_shape_: ``(F,)``, or ``(H, W, C)`` for images.
        learner_: The ``deepccg.Learner`` underneath.

    >>> import numpy as np
    >>> model = DeepCCGClassifier(random_state=0)
    >>> model = model.partial_fit(np.array([[0.0, 1.0], [1.0, 0.0]]), ["cow", "dog"])
    >>> model = model.partial_fit(np.array([[-1.0, 1.0]]), ["ant"])
    >>> model.classes_.tolist(), model.predict([[-1.0, 1.0]]).tolist()
    (['ant', 'cow', 'dog'], ['ant'])
    """

    def __init__(
        self,
        method: str = "deepccg",
        *,
        lr: float | None = None,
        replay: int | None = None,
        repeats: int | None = None,
        method_params: Mapping[str, Any] | None = None,
        encoder: str | nn.Module = "auto",
        encoder_params: Mapping[str, Any] | None = None,
        class_prior: str = "uniform",
        memory: int = 500,
        batch_size: int | None = None,
        epochs: int = 10,
        device: str = "cpu",
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.lr = lr
        self.replay = replay
        self.repeats = repeats
        self.method_params = method_params
        self.encoder = encoder
        self.encoder_params = encoder_params
        self.class_prior = class_prior
        self.memory = memory
        self.batch_size = batch_size
        self.epochs = epochs
        self.device = device
        self.standardize = standardize
        self.random_state = random_state

    @classmethod
    def spec_fields(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``StreamClassifier``."""
        own = params["method_params"] or {}
        common = {name: params[name] for name in COMMON_FIELDS if params.get(name) is not None}
        if not common or not isinstance(own, Mapping):
            return params
        for name in common.keys() & own.keys():
            raise InputError(f"{name} is given twice, as {name}= and in method_params: choose one")
        return {**params, "method_params": {**own, **common}}

    @classmethod
    def spec_params(cls, spec: LearnerSpec, fields: Iterable[str]) -> dict[str, Any]:
        """See ``StreamClassifier``."""
        found = super().spec_params(spec, fields)
        return found | dict.fromkeys(COMMON_FIELDS) if "method_params" in found else found

    def first_spec(self, x: Tensor, declared: int) -> LearnerSpec:
        """See ``StreamClassifier``."""
        _check_prior(self.class_prior, self.method)
        return super().first_spec(x, declared)

    def log_prior(self) -> FloatArray | None:
        """See ``StreamClassifier``."""
        _check_prior(self.class_prior, self.method)
        if self.class_prior == "uniform":
            return None
        seen = inspection.class_counts(self.learner_, self._labels)["seen"]
        return np.log(np.maximum(seen, 1))  # what never came is -inf already

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803  (scikit-learn's name)
        """Forget everything and learn ``X``, ``y`` in ``epochs`` shuffled passes."""
        with transaction(self):
            check_count("epochs", self.epochs)
            x = check_inputs(self, X, reset=True)
            labels = check_labels(y, x)
            self._labels, codes = LabelTable.empty().coded(labels)
            self.classes_ = self._labels.labels
            self._rebuild(self.first_spec(x, declared=len(self._labels)))
            targets = torch.from_numpy(codes)
            shuffle = make_generator(self._spec.seed, "shuffle")
            observe(self.learner_, x)
            fresh = self.learner_.state_dict()
            # A classifier derived from memory must not hold an example twice.
            refill = isinstance(self.learner_, DeepCCG | ProtoCL)
            for _ in range(self.epochs):
                if refill:
                    self.learner_.load_state_dict(without_memory(self.learner_.state_dict(), fresh))
                order = torch.randperm(len(x), generator=shuffle)
                for rows in self._slices(len(x), min(FIT_BATCH, math.ceil(len(x) / FIT_STEPS))):
                    self.learner_.learn(Batch(x[order[rows]], targets[order[rows]]))
            advise(self, x)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, task: AnyTask = None) -> Self:  # noqa: N803
        """Learn further examples; new classes need no declaration.

        Args:
            X: Vectors ``[N, F]`` or images ``[N, H, W, C]``.
            y: Their labels ``[N]``.
            classes: Labels that will come, if known: they share the memory from the start.
            task: The labels that are possible here, if not all: examples are then compared with
                these alone, and methods that need task boundaries see the labels change.
        """
        with transaction(self):
            x = check_inputs(self, X, reset="learner_" not in vars(self), learn=True)
            labels = check_labels(y, x)
            table, codes, declared, own_task = self._learn_labels(labels, x, classes, task)
            with self.learner_.transaction():
                if classes is not None:
                    self.learner_.class_table.declare(range(declared))
                targets = torch.from_numpy(codes)
                for rows in self._steps(x):
                    self.learner_.learn(Batch(x[rows], targets[rows], own_task))
                advise(self, x)
            self._labels, self.classes_ = table.with_task(own_task), table.labels
        return self

    @only_deepccg("has no class densities")
    def ood_score(self, X: Any) -> FloatArray:  # noqa: N803
        """Return how unlike anything learned each input is, ``[N]``: larger is more unusual.

        Minus the log of the predictive density of its embedding under all classes seen, each
        equally likely, with the covariance that the stored examples have within their classes.
        """
        with turns(self):
            check_is_fitted(self)
            learner = inspection.require_densities(self.learner_)
            return ood_scores(learner, check_inputs(self, X, reset=False)).cpu().numpy()

    @only_deepccg("has no class densities")
    def explain(self, X: Any, neighbours: int = 3) -> Table:  # noqa: N803
        """Return why each input is classified as it is.

        Returns:
            ``distance [N, K]`` to the mean of each class, in the order of ``classes_`` and in
            standard deviations (NaN where nothing is stored), and of the nearest stored examples
            ``neighbour [N, n]`` (rows of ``memory_``), ``neighbour_label`` and
            ``neighbour_distance``.
        """
        with turns(self):
            check_is_fitted(self)
            learner = inspection.require_densities(self.learner_)
            x = check_inputs(self, X, reset=False)
            return inspection.explain(learner, self._labels, x, neighbours)

    @property
    def memory_(self) -> Table:
        """The stored examples, one row each: ``index``, ``label``, ``x`` and ``contribution``.

        The contribution, with a generative method, is the KL divergence of the posterior over
        the class's mean from what it would be without the example: infinite for the only one.
        """
        with turns(self):
            check_is_fitted(self)
            return inspection.stored_examples(self.learner_, self._labels)

    @property
    def evidence_(self) -> Table:
        """The former name of ``class_counts_``."""
        warn_renamed("evidence_", "class_counts_")
        return self.class_counts_

    @property
    def shift_(self) -> RepresentationShift:
        """What learning did to the stored examples' embeddings since this was last read.

        The first reading starts the measurement: there is nothing to compare with. Without
        learning in between it is the same again. Each shift is logged, as INFO to ``deepccg``.
        """
        with turns(self):
            check_is_fitted(self)
            if "_shift_monitor" not in vars(self):
                self._shift_monitor = ShiftMonitor()
            return self._shift_monitor.measure(self.learner_)

    @only_deepccg("cannot forget")
    def forget(self, cls: Any = None, index: Any = None) -> Self:
        """Remove a class, or stored examples, as if they had never been stored.

        Afterwards neither memory, counters, caches nor a file saved from now on hold a trace of
        them. What the encoder learned from them stays in its weights: only ``fit`` undoes that.

        Args:
            cls: A label, or several.
            index: A row of ``memory_``, or several. A class that loses the last of its examples
                that were ever seen goes as well.
        """
        with transaction(self):
            check_is_fitted(self)
            self._spec.require_unchanged(self.spec_fields(vars(self)))
            state, kept = unlearn(self.learner_.state_dict(), self._labels, cls, index)
            self._labels, self.classes_ = kept.table, kept.table.labels
            self._rebuild(self._spec.renumbered(kept.new_code), state)
        return self

    def _steps(self, x: Tensor) -> Iterator[slice | Tensor]:
        """Yield the rows of each step of ``partial_fit``, which are then part of the scale."""
        if self.batch_size is not None or len(x) <= STEP:
            for rows in self._slices(len(x), len(x)):
                observe(self.learner_, x[rows])
                yield rows
            return
        observe(self.learner_, x)
        # Not the learner's generator: some learners draw nothing and do not take draws back.
        shuffle = make_generator(self._spec.seed, "shuffle", str(self.learner_.steps))
        order = torch.randperm(len(x), generator=shuffle)
        yield from order.chunk(math.ceil(len(x) / STEP))

    def _slices(self, length: int, default: int) -> Iterator[slice]:
        """Yield the rows of each step; ``default`` is the ``batch_size`` where none is set."""
        size = default if self.batch_size is None else self.batch_size
        check_count("batch_size", size)
        for begin in range(0, length, size):
            yield slice(begin, begin + size)


def _check_prior(class_prior: Any, method: Any) -> None:
    """Reject what is no prior, and one for a method that learns how frequent classes are."""
    check_prior(class_prior)
    if class_prior == "observed" and not issubclass(learner_class(method), DeepCCG):
        raise InputError(f"class_prior='observed' is for deepccg: {method} has a prior of its own")
