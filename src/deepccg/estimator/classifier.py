"""A classifier that keeps learning, with scikit-learn's conventions."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from deepccg.core import Batch, make_generator
from deepccg.deprecation import warn_renamed
from deepccg.estimator import inspection
from deepccg.estimator.base import StreamClassifier
from deepccg.estimator.features import FloatArray
from deepccg.estimator.inputs import check_count, check_inputs, check_labels
from deepccg.estimator.inspection import RepresentationShift, ShiftMonitor, Table
from deepccg.estimator.labels import AnyTask, LabelTable
from deepccg.estimator.ood import ood_scores
from deepccg.estimator.persistence import transaction
from deepccg.estimator.spec import only_deepccg
from deepccg.estimator.turns import turns
from deepccg.estimator.unlearning import unlearn, without_memory
from deepccg.methods.deepccg import DeepCCG
from deepccg.methods.protocl import ProtoCL

FIT_BATCH, FIT_STEPS = 32, 10  # of ``fit``: most rows per step, fewest steps per pass


class DeepCCGClassifier(StreamClassifier):
    """A classifier that keeps learning from a stream, new classes included, in fixed memory.

    ``partial_fit`` takes one step and may bring classes that were never declared. ``fit`` starts
    over and makes ``epochs`` shuffled passes; with a method whose classifier is derived from
    memory (DeepCCG), each pass refills the memory, so that it holds no example twice.

    Args:
        method: A name of ``deepccg.METHODS``.
        method_params: Its fields, such as ``{"lr": 0.05}``; ``deepccg methods NAME`` lists them.
            DeepCCG has ``renewal="errors"`` by default, so that classes that change are followed.
        encoder: ``"mlp"`` for vectors, ``"resnet"`` for images, ``"identity"`` for embeddings
            computed elsewhere, ``"auto"`` to choose between the first two by the data's shape;
            ``"patches"`` (images), ``"fourier"`` (vectors) or ``"fixed"`` (either) for features
            that are fitted to the first batch and never change; or a module ``[B, F] -> [B, D]``
            or ``[B, C, H, W] -> [B, D]``, which is copied. Parameters that do not require a
            gradient stay as they are.
        encoder_params: Fields of a named encoder: ``{"layers": (100, 80)}``, ``{"width": 10}``.
        memory: How many examples may be stored, in total, shared among the classes.
        batch_size: Rows per optimiser step. ``None`` makes every ``partial_fit`` call one step,
            and the steps of ``fit`` 32 rows, or a tenth of the data where that is less.
        epochs: Passes that ``fit`` makes.
        device: Where the learner lives, as PyTorch names it.
        random_state: Seeds the encoder, the order of ``fit`` and the learner's draws.

    Attributes:
        classes_: The labels known, sorted; declared ones included.
        n_features_in_: How many numbers one input has.
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
        method_params: Mapping[str, Any] | None = None,
        encoder: str | nn.Module = "auto",
        encoder_params: Mapping[str, Any] | None = None,
        memory: int = 500,
        batch_size: int | None = None,
        epochs: int = 10,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.method_params = method_params
        self.encoder = encoder
        self.encoder_params = encoder_params
        self.memory = memory
        self.batch_size = batch_size
        self.epochs = epochs
        self.device = device
        self.random_state = random_state

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
            fresh = self.learner_.state_dict()
            # A classifier derived from memory must not hold an example twice.
            refill = isinstance(self.learner_, DeepCCG | ProtoCL)
            for _ in range(self.epochs):
                if refill:
                    self.learner_.load_state_dict(without_memory(self.learner_.state_dict(), fresh))
                order = torch.randperm(len(x), generator=shuffle)
                for rows in self._slices(len(x), min(FIT_BATCH, math.ceil(len(x) / FIT_STEPS))):
                    self.learner_.learn(Batch(x[order[rows]], targets[order[rows]]))
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, task: AnyTask = None) -> Self:  # noqa: N803
        """Learn one batch, or several of ``batch_size``; new classes need no declaration.

        Args:
            X: Vectors ``[N, F]`` or images ``[N, H, W, C]``.
            y: Their labels ``[N]``.
            classes: Labels that will come, if known: they share the memory from the start.
            task: The labels that are possible here, if not all: examples are then compared with
                these alone, and methods that need task boundaries see the labels change.
        """
        with transaction(self):
            x = check_inputs(self, X, reset="learner_" not in vars(self))
            labels = check_labels(y, x)
            table, codes, declared, own_task = self._learn_labels(labels, x, classes, task)
            with self.learner_.transaction():
                if classes is not None:
                    self.learner_.class_table.declare(range(declared))
                for rows in self._slices(len(x), len(x)):
                    self.learner_.learn(Batch(x[rows], torch.from_numpy(codes[rows]), own_task))
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
            self._spec.require_unchanged(vars(self))
            state, kept = unlearn(self.learner_.state_dict(), self._labels, cls, index)
            self._labels, self.classes_ = kept.table, kept.table.labels
            self._rebuild(self._spec.renumbered(kept.new_code), state)
        return self

    def _slices(self, length: int, default: int) -> Iterator[slice]:
        """Yield the rows of each step; ``default`` is the ``batch_size`` where none is set."""
        size = default if self.batch_size is None else self.batch_size
        check_count("batch_size", size)
        for begin in range(0, length, size):
            yield slice(begin, begin + size)
