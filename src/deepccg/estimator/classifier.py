"""A classifier that keeps learning, with scikit-learn's conventions."""

import copy
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from deepccg.core import Batch, InputError, make_generator
from deepccg.estimator.features import FloatArray
from deepccg.estimator.inputs import check_count, check_inputs, check_labels
from deepccg.estimator.inspection import Inspection
from deepccg.estimator.labels import (
    AnyTask,
    IntArray,
    Labels,
    LabelTable,
    TaskTable,
    check_within,
    labels_of,
    plain_labels,
)
from deepccg.estimator.onnx_export import export_estimator
from deepccg.estimator.persistence import (
    all_or_nothing,
    as_arrays,
    as_tensors,
    load_estimator,
    save_estimator,
)
from deepccg.estimator.spec import Plan, can_forget, completed_params, only_if
from deepccg.estimator.unlearning import forget, without_memory
from deepccg.methods.deepccg import DeepCCG
from deepccg.methods.protocl import ProtoCL

CERTAIN = 1e9  # log odds of what is impossible or certain, so that they are finite


def check_predicted(logits: FloatArray) -> None:
    """Refuse inputs on which the encoder or the classifier has overflown."""
    rows = np.isnan(logits.max(axis=1, initial=-np.inf))
    if rows.any():
        raise InputError(
            f"the outputs for row {rows.argmax()} of X are not numbers: its values are too large "
            f"for this encoder; scale the inputs"
        )


def log_softmax(logits: FloatArray) -> FloatArray:
    """Log probabilities of ``logits [N, K]``."""
    total: FloatArray = np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return logits - total


def log_odds(logits: FloatArray) -> FloatArray:
    """``log p_c / (1 - p_c)`` of ``logits [N, K]``, exact also where p_c is nearly 1.

    >>> log_odds(np.log([[0.2, 0.8]])).round(4).tolist()
    [[-1.3863, 1.3863]]
    """
    best = logits.argmax(axis=1)[:, None]
    rest = logits.copy()
    np.put_along_axis(rest, best, -np.inf, axis=1)
    rest_total = np.logaddexp.reduce(rest, axis=1, keepdims=True)
    total = np.logaddexp(rest_total, np.take_along_axis(logits, best, axis=1))
    odds = rest - total - np.log1p(-np.exp(rest - total))  # here p_c is at most a half
    np.put_along_axis(odds, best, np.take_along_axis(logits, best, axis=1) - rest_total, axis=1)
    return np.clip(odds, -CERTAIN, CERTAIN)


FIT_BATCH, FIT_STEPS = 32, 10  # of ``fit``: most rows per step, fewest steps per pass


class DeepCCGClassifier(Inspection, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """A classifier that keeps learning from a stream, new classes included, in fixed memory.

    ``partial_fit`` takes one step and may bring classes that were never declared. ``fit`` starts
    anew and makes ``epochs`` shuffled passes; with a method whose classifier is derived from
    memory (DeepCCG), each pass fills the memory anew, so that it holds no example twice.

    Args:
        method: The engine, a name of ``deepccg.METHODS``.
        method_params: Its fields, such as ``{"lr": 0.05}``; ``deepccg methods NAME`` lists them.
            DeepCCG has ``renewal="errors"`` unless it is given: classes that change are followed.
        encoder: ``"mlp"`` for vectors, ``"resnet"`` for images, ``"identity"`` for embeddings
            computed elsewhere, ``"auto"`` to choose between the first two by the data's shape, or
            a module ``[B, F] -> [B, D]`` or ``[B, C, H, W] -> [B, D]``, which is copied. Parameters
            that do not require a gradient stay as they are.
        encoder_params: Fields of a named encoder: ``{"layers": (100, 80)}``, ``{"width": 10}``.
        memory: How many examples may be stored, in total, shared among the classes.
        batch_size: Rows per optimiser step. ``None`` makes every ``partial_fit`` call one step,
            and the steps of ``fit`` 32 rows, or a tenth of the data where that is less.
        epochs: Passes that ``fit`` makes.
        device: Where the learner lives, as PyTorch names it.
        random_state: Seeds the encoder, the order of ``fit`` and the learner's own draws.

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

    n_features_in_: int
    input_shape_: tuple[int, ...]

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
        with all_or_nothing(self):
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:  # noqa: N803
        check_count("epochs", self.epochs)
        x = check_inputs(self, X, reset=True)
        labels = check_labels(y, x)
        self._labels = LabelTable.empty().extended(labels)
        self.classes_ = self._labels.labels
        self._start(x, len(self._labels))
        codes = torch.from_numpy(self._labels.encode(labels))
        shuffle = make_generator(self._plan.seed, "shuffle")
        fresh = self.learner_.state_dict()
        for _ in range(self.epochs):
            if isinstance(self.learner_, DeepCCG | ProtoCL):  # no other counts what it stored
                self.learner_.load_state_dict(without_memory(self.learner_.state_dict(), fresh))
            order = torch.randperm(len(x), generator=shuffle)
            for rows in self._steps(len(x), min(FIT_BATCH, math.ceil(len(x) / FIT_STEPS))):
                self.learner_.learn(Batch(x[order[rows]], codes[order[rows]]))

    def partial_fit(self, X: Any, y: Any, classes: Any = None, task: AnyTask = None) -> Self:  # noqa: N803
        """Learn one batch, or further ones of ``batch_size``; new classes need no declaration.

        Args:
            X: Vectors ``[N, F]`` or images ``[N, H, W, C]``.
            y: Their labels ``[N]``.
            classes: Labels that will come, if known: they share the memory from the start.
            task: The labels that are possible here, if not all: examples are then compared with
                these alone, and methods that need to know where a task ends see the labels change.
        """
        with all_or_nothing(self):
            self._partial_fit(X, y, classes, task)
        return self

    def _partial_fit(self, X: Any, y: Any, classes: Any, task: AnyTask) -> None:  # noqa: N803
        first = "learner_" not in vars(self)
        x = check_inputs(self, X, reset=first)
        labels = check_labels(y, x)
        table = LabelTable.empty() if first else self._labels
        if classes is not None:
            table = table.extended(plain_labels(classes))
        declared = len(table)
        if task is not None:
            table = table.extended(labels_of(task))
            check_within(labels, labels_of(task))
        table, codes = table.coded(labels)
        if first:
            self._start(x, declared)
        else:
            self._plan.require_unchanged(self)
        self._labels, self.classes_ = table, table.labels
        own_task = self._tasks.task(task, table)
        with self.learner_.transaction():
            if classes is not None:
                self.learner_.class_table.declare(range(declared))
            for rows in self._steps(len(x), len(x)):
                self.learner_.learn(Batch(x[rows], torch.from_numpy(codes[rows]), own_task))
        self._tasks.note(own_task)

    def predict(self, X: Any, task: AnyTask = None) -> Labels:  # noqa: N803
        """The most probable label of each example, ``[N]``; with a task, of its labels."""
        best = self._logits(X, task).argmax(axis=1)
        labels: Labels = self.classes_[best]
        return labels

    def predict_log_proba(self, X: Any, task: AnyTask = None) -> FloatArray:  # noqa: N803
        """Log probabilities ``[N, K]`` in the order of ``classes_``."""
        return log_softmax(self._logits(X, task))

    def predict_proba(self, X: Any, task: AnyTask = None) -> FloatArray:  # noqa: N803
        """Probabilities ``[N, K]`` in the order of ``classes_``; 0 for what was never seen."""
        return np.exp(log_softmax(self._logits(X, task)))

    def decision_function(self, X: Any, task: AnyTask = None) -> FloatArray:  # noqa: N803
        """Log odds of each class against the others, ``[N, K]``; ``[N]`` of the second of two."""
        odds = log_odds(self._logits(X, task))
        return odds[:, 1] if odds.shape[1] == 2 else odds

    @only_if(can_forget)
    def forget(self, cls: Any = None, index: Any = None) -> Self:
        """Remove a class, or stored examples, as if they had never been stored.

        Afterwards neither memory, counters, caches nor a file saved from now on hold a trace of
        them. What the encoder learned from them stays in its weights: only ``fit`` undoes that.

        Args:
            cls: A label, or several.
            index: A row of ``memory_``, or several. A class that loses the last of its examples
                that were ever seen goes as well.
        """
        check_is_fitted(self)
        self._plan.require_unchanged(self)
        with all_or_nothing(self):
            forget(self, cls, index)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier to one file of tensors and JSON, from which it goes on."""
        check_is_fitted(self)
        save_estimator(path, self)

    def export(self, path: str | os.PathLike[str], format: str = "onnx") -> None:  # noqa: A002
        """Write an ONNX file that predicts what this classifier predicts; it cannot learn.

        Its input ``x`` takes what ``predict_proba`` takes, any number of rows; its outputs are
        ``probabilities`` and ``label``, a position in the list of class labels that its metadata
        holds as JSON under ``classes``.

        Args:
            path: A file in a directory that exists.
            format: ``"onnx"``.
        """
        check_is_fitted(self)
        export_estimator(path, self, format)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        encoder: nn.Module | None = None,
        device: str | None = None,
    ) -> Self:
        """A saved classifier. Nothing in the file can run code.

        Args:
            path: What ``save`` wrote.
            encoder: The module, if it was made with one: a file holds its weights, not its code.
            device: Another device than it was on.
        """
        loaded = cls()
        load_estimator(path, loaded, encoder, device)
        return loaded

    def __getstate__(self) -> dict[str, Any]:
        """The learner as its saved state: arrays and plain values, no generator or cache."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_watch", None)
        if "learner_" in state:
            state["learner_"] = as_arrays(self.learner_.state_dict())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "learner_" in state:
            self.learner_ = self._plan.build()
            self.learner_.load_state_dict(as_tensors(state["learner_"]))

    def _start(self, x: Tensor, declared: int) -> None:
        """A fresh learner for inputs like ``x`` that knows the first ``declared`` codes."""
        check_count("memory", self.memory, least=0)
        self.__dict__.pop("_watch", None)
        self._tasks = TaskTable()
        self._plan = Plan(
            method=self.method,
            method_params=completed_params(self.method, self.method_params),
            encoder=copy.deepcopy(self.encoder),
            encoder_params=dict(self.encoder_params or {}),
            memory=self.memory,
            device=self.device,
            shape=tuple(x.shape[1:]),
            double=x.dtype == torch.float64,
            classes=tuple(range(declared)),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        self.learner_ = self._plan.build()

    def _steps(self, length: int, default: int) -> Iterator[slice]:
        size = default if self.batch_size is None else self.batch_size
        check_count("batch_size", size)
        for begin in range(0, length, size):
            yield slice(begin, begin + size)

    def _logits(self, X: Any, task: AnyTask) -> FloatArray:  # noqa: N803
        """The learner's logits in the order of ``classes_``, ``[N, K]``; -inf where it has none."""
        check_is_fitted(self)
        x = check_inputs(self, X, reset=False)
        own_task = self._tasks.task(task, self._labels)
        raw = self.learner_.predict_logits(x, own_task).double().cpu().numpy()
        check_predicted(raw)
        logits = np.full((len(x), len(self.classes_)), -np.inf)
        columns: IntArray = np.array(self.learner_.columns(own_task), dtype=np.int64)
        logits[:, self._labels.positions()[columns]] = raw
        return logits
