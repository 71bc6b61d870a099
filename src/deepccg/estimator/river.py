"""The same classifier with River's conventions: one dictionary at a time."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from torch import nn

from deepccg.core import InputError
from deepccg.estimator.base import StreamClassifier
from deepccg.estimator.classifier import DeepCCGClassifier
from deepccg.estimator.features import (
    FeatureTable,
    FloatArray,
    frame_values,
    of_width,
    present,
    split_at_new_features,
)
from deepccg.estimator.inputs import check_count, readable
from deepccg.estimator.labels import LabelTable
from deepccg.estimator.persistence import transaction
from deepccg.estimator.plain_labels import Labels, comparable, is_among, plain_labels
from deepccg.estimator.spec import only_deepccg
from deepccg.estimator.turns import turns
from deepccg.estimator.widening import add_inputs

try:
    import pandas as pd
    from river import base
except ImportError as missing:
    raise InputError(
        f"RiverClassifier needs River ({missing}): pip install 'deepccg[river]'"
    ) from None


class RiverClassifier(base.MiniBatchClassifier):
    """A classifier that keeps learning, new classes and features included, in fixed memory.

    ``learn_one`` takes an optimiser step on the example and a replay of stored ones; with
    ``batch_size`` examples are gathered first. No scaler is needed in front: examples are stored as
    they come, and all of them are standardised by what is known of the scale when they are used.

    A feature that is missing, ``None`` or NaN counts as 0. A new
    one gets a further input, which changes no prediction until something is learned of it; in a
    prediction it is ignored. Values that are not numbers are refused, and a call that raises
    changes nothing.

    Args:
        method: A name of ``deepccg.METHODS``.
        lr: Step size of the optimiser; ``None`` leaves the method's own.
        replay: Stored examples that each step trains on, too; ``None`` leaves the method's own.
        repeats: Optimiser steps per batch, each with another replay; ``None`` is one.
        method_params: Its other fields; ``deepccg methods NAME`` lists them. DeepCCG
            has ``renewal="errors"`` by default, so that classes that change are followed.
        encoder: ``"mlp"``, ``"identity"``, or a module ``[B, F] -> [B, D]``, which is copied and
            has no room for new features.
        encoder_params: Fields of a named encoder: ``{"layers": (100, 80)}``.
        class_prior: ``"uniform"``, or ``"observed"``: as probable as they were frequent.
        memory: How many examples may be stored, in total, shared among the classes.
        batch_size: Examples per optimiser step. Until that many have come they wait, and
            predictions do not depend on them.
        standardize: Whether ``"mlp"`` sees inputs in units of their running mean and deviation.
        seed: Of every random draw.

    Attributes:
        classifier: The ``DeepCCGClassifier`` underneath, with ``memory_``, ``explain``, ``shift_``,
            ``save`` and the rest; ``rows`` makes the arrays it takes.
        features: The names of its inputs.

    >>> model = RiverClassifier(seed=0)
    >>> model.predict_one({"a": 1.0})
    >>> model.learn_one({"a": 1.0, "b": 0.0}, "cow")
    >>> model.learn_one({"a": -1.0, "b": 0.5}, "dog")
    >>> model.predict_one({"a": -1.0, "b": 0.5})
    'dog'
    >>> sorted(model.predict_proba_one({"a": 0.9}))
    ['cow', 'dog']
    """

    _kind: type[StreamClassifier] = DeepCCGClassifier

    def __init__(
        self,
        method: str = "deepccg",
        *,
        lr: float | None = None,
        replay: int | None = None,
        repeats: int | None = None,
        method_params: Mapping[str, Any] | None = None,
        encoder: str | nn.Module = "mlp",
        encoder_params: Mapping[str, Any] | None = None,
        class_prior: str = "uniform",
        memory: int = 500,
        batch_size: int = 1,
        standardize: bool = True,
        seed: int | None = None,
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
        self.standardize = standardize
        self.seed = seed
        self._begin(
            DeepCCGClassifier(
                method,
                lr=lr,
                replay=replay,
                repeats=repeats,
                method_params=method_params,
                encoder=encoder,
                encoder_params=encoder_params,
                class_prior=class_prior,
                memory=memory,
                batch_size=batch_size,
                standardize=standardize,
                random_state=seed,
            )
        )

    def _begin(self, classifier: StreamClassifier) -> None:
        self.classifier = classifier
        self._table = FeatureTable()
        self._waiting: list[tuple[FloatArray, Any]] = []

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def features(self) -> list[Any]:
        """The name of each input of ``classifier``."""
        return list(self._table.slots)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, all of one moment, whatever other threads learn."""
        with turns(self.classifier):
            table = copy.deepcopy(self._table)
            return {**vars(self), "classifier": self.classifier.__getstate__(), "_table": table}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.classifier = self._kind()
        self.classifier.__setstate__(state["classifier"])

    def rows(self, X: Any) -> FloatArray:  # noqa: N803  (scikit-learn's name)
        """Return dictionaries, or a data frame, as the array ``[N, F]`` for ``classifier``."""
        with turns(self.classifier):
            if not self._has_learned():
                raise InputError("nothing was learned yet: there are no inputs to put values into")
            if isinstance(X, pd.DataFrame):
                rows = self._table.rows(frame_values(X), X.columns)
            else:
                each = [self._table.row(present(x)) for x in X]
                rows = np.array(each).reshape(len(each), len(self._table))
            return of_width(rows, self.classifier.n_features_in_)

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Learn one example, or keep it until there are ``batch_size`` of them."""
        check_count("batch_size", self.batch_size)
        values, label = present(x), plain_labels([y])
        with self._transaction():
            self._known_labels().extended(label)  # refuses what cannot be a label beside the others
            self._add_features(values)
            self._learn(self._table.row(values)[None], label)

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:  # noqa: N803
        """Learn the rows as ``learn_one`` would, one after the other."""
        check_count("batch_size", self.batch_size)
        X = _as_pandas(X)  # noqa: N806
        values, labels, names = frame_values(X), plain_labels(readable(y, "y")), list(X.columns)
        if len(values) != len(labels):
            raise InputError(f"there are {len(values)} rows and {len(labels)} labels")
        with turns(self.classifier):
            self._known_labels().extended(labels)
            parts = list(split_at_new_features(values, names, known=self._table.slots))
            with self._transaction(calls=len(parts)):
                for rows, new in parts:
                    self._add_features(new)
                    self._learn(self._table.rows(values[rows], names), labels[rows])

    @only_deepccg("cannot forget")
    def forget(self, cls: Any) -> None:
        """Remove a label, or several, learned or waiting, as if no example had come with it.

        ``classifier.forget``, which this calls, does not reach examples that wait.
        """
        forgotten = plain_labels(cls)
        with self._transaction():
            self._known_labels().encode(forgotten)  # refuses those that never came
            if self._has_classes():
                learned = forgotten[is_among(forgotten, self.classifier.classes_)]
                if len(learned):
                    self.classifier.forget(cls=learned)
            gone = set(forgotten.tolist())
            self._waiting = [(row, label) for row, label in self._waiting if label not in gone]

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Return the probability of every label seen so far; before the first an empty ``dict``."""
        del kwargs
        labels, probability = self._probabilities([x])
        return dict(zip(labels, probability[0].tolist(), strict=True))

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:  # noqa: N803
        """Return the probability of every label seen so far, a column each."""
        X = _as_pandas(X)  # noqa: N806
        labels, probability = self._probabilities(X)
        return pd.DataFrame(probability, index=X.index, columns=labels)

    def predict_many(self, X: pd.DataFrame) -> pd.Series:  # noqa: N803
        """Return the most probable label of each row; ``None`` before the first was seen."""
        X = _as_pandas(X)  # noqa: N806
        labels, probability = self._probabilities(X)
        if not labels:
            return pd.Series([None] * len(X), index=X.index, dtype=object)
        return pd.Series([labels[best] for best in probability.argmax(axis=1)], index=X.index)

    def _add_features(self, names: Iterable[Any]) -> None:
        """Make inputs for these features: where there are too few, twice as many as before."""
        needed = len(self._table.slots.keys() | set(names))
        if self._has_learned() and needed > (width := self.classifier.n_features_in_):
            add_inputs(self.classifier, max(needed, 2 * width))
        self._table.add(names)

    def _learn(self, rows: FloatArray, labels: Labels) -> None:
        """Take the steps for which there are enough examples; the others wait."""
        # Copies: a view would keep all of ``rows``, also what is forgotten of it.
        new = [(row.copy(), label) for row, label in zip(rows, labels, strict=True)]
        examples = [*self._waiting, *new]
        ready = len(examples) // self.batch_size * self.batch_size
        if ready:
            width = self.classifier.n_features_in_ if self._has_learned() else len(self._table)
            x = np.concatenate([of_width(row[None], max(width, 1)) for row, _ in examples[:ready]])
            self.classifier.partial_fit(x, plain_labels([label for _, label in examples[:ready]]))
        self._waiting = examples[ready:]

    @contextmanager
    def _transaction(self, calls: int = 1) -> Iterator[None]:
        """Undo everything if the block fails; a single ``partial_fit`` undoes its own steps.

        The lock of the classifier is that of all this holds.
        """
        with transaction(self.classifier):
            waiting, features = self._waiting, len(self._table)
            several = calls > 1 and self._has_learned()
            try:
                with self.classifier.learner_.transaction() if several else nullcontext():
                    yield
            except BaseException:
                self._waiting = waiting
                self._table.keep(features)
                raise

    def _known_labels(self) -> LabelTable:
        """Return the labels learned, and those of examples that wait."""
        learned = self.classifier._labels if self._has_learned() else LabelTable.empty()
        if not self._waiting:
            return learned
        return learned.extended(plain_labels([label for _, label in self._waiting]))

    def _has_learned(self) -> bool:
        return "learner_" in vars(self.classifier)

    def _has_classes(self) -> bool:
        """Return whether it has learned some label, and not forgotten them all."""
        return self._has_learned() and len(self.classifier.classes_) > 0

    def _probabilities(self, X: Any) -> tuple[list[Any], FloatArray]:  # noqa: N803
        """Return the labels seen so far and their probabilities ``[N, K]``, 0 while they wait."""
        with turns(self.classifier):
            labels = self._known_labels().labels
            probability = np.zeros((len(X), len(labels)))
            if not self._has_classes():
                probability += 1 / max(len(labels), 1)
            elif len(X):
                known = np.searchsorted(*comparable(labels, self.classifier.classes_))
                probability[:, known] = self.classifier.predict_proba(self.rows(X))
            return labels.tolist(), probability


def _as_pandas(frame: Any) -> pd.DataFrame:
    """Return any data frame as one of pandas."""
    if isinstance(frame, pd.DataFrame):
        return frame
    if callable(getattr(frame, "to_pandas", None)):
        return frame.to_pandas()
    raise InputError(f"X is a {type(frame).__name__}: a data frame is needed, or learn_one")
