"""The same classifier with River's conventions: one dictionary at a time."""

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.functional import pad

from deepccg.core import InputError, State, StateMismatch
from deepccg.estimator.classifier import DeepCCGClassifier
from deepccg.estimator.features import FeatureTable, FloatArray, frame_values, present
from deepccg.estimator.inputs import check_count
from deepccg.estimator.labels import Labels, LabelTable, plain_labels
from deepccg.estimator.persistence import all_or_nothing
from deepccg.estimator.spec import can_forget, only_if

# The weights that read an input: of an MLP, and of a head on the inputs themselves.
_READERS = {"auto": "layers.0.weight", "mlp": "layers.0.weight", "identity": "head.weight"}


def widen(estimator: Any, width: int) -> None:
    """Give a fitted ``DeepCCGClassifier`` on vectors ``width`` inputs.

    The new ones are 0 in every stored example, and so are the weights that read them: nothing is
    predicted otherwise until something was learned of them.
    """
    plan = estimator._plan
    if plan.encoder not in _READERS:
        raise InputError(
            f"your encoder takes the {plan.shape[0]} features it began with: it cannot take more"
        )
    wider = dataclasses.replace(plan, shape=(width,))
    state = _widened(estimator.learner_.state_dict(), _READERS[plan.encoder], width)
    learner = wider.build()
    try:
        learner.load_state_dict(state)
    except StateMismatch as error:
        raise InputError(
            f"{plan.method} on {plan.encoder!r} cannot take features that it did not begin with: "
            f"{error}"
        ) from None
    estimator._plan, estimator.learner_ = wider, learner
    estimator.n_features_in_, estimator.input_shape_ = width, (width,)
    vars(estimator).pop("_watch", None)  # the examples that it follows are too narrow


def _widened(state: State, reader: str, width: int) -> State:
    tensors = {
        name: _padded(value, width) if name == "memory.x" or name.endswith(reader) else value
        for name, value in state.tensors.items()
    }
    inputs = {**state.meta["parts"]["inputs"], "shape": [width]}
    return State(tensors, {**state.meta, "parts": {**state.meta["parts"], "inputs": inputs}})


def _padded(value: Tensor, width: int) -> Tensor:
    return pad(value, (0, width - value.shape[-1])) if value.ndim == 2 else value


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
    ``batch_size`` examples are gathered first. Inputs are not scaled: put
    ``river.preprocessing.StandardScaler()`` in front.

    A feature that is missing, ``None`` or NaN counts as 0, the mean of a standardised one. One
    that is new gets an input of its own, which changes no prediction until something is learned of
    it; in a prediction it is ignored. Values that are not numbers are refused, and a call that
    raises changes nothing.

    Args:
        method: The engine, a name of ``deepccg.METHODS``.
        method_params: Its fields, such as ``{"lr": 0.05}``; ``deepccg methods NAME`` lists them.
            DeepCCG has ``renewal="errors"`` unless it is given: classes that change are followed.
        encoder: ``"mlp"``, ``"identity"``, or a module ``[B, F] -> [B, D]``, which is copied and
            has no room for new features.
        encoder_params: Fields of a named encoder: ``{"layers": (100, 80)}``.
        memory: How many examples may be stored, in total, shared among the classes.
        batch_size: Examples per optimiser step. Until that many have come they wait, and
            predictions know nothing of them.
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

    def __init__(
        self,
        method: str = "deepccg",
        *,
        method_params: Mapping[str, Any] | None = None,
        encoder: str | nn.Module = "mlp",
        encoder_params: Mapping[str, Any] | None = None,
        memory: int = 500,
        batch_size: int = 1,
        seed: int | None = None,
    ) -> None:
        self.method = method
        self.method_params = method_params
        self.encoder = encoder
        self.encoder_params = encoder_params
        self.memory = memory
        self.batch_size = batch_size
        self.seed = seed
        self.classifier = DeepCCGClassifier(
            method,
            method_params=method_params,
            encoder=encoder,
            encoder_params=encoder_params,
            memory=memory,
            batch_size=batch_size,
            random_state=seed,
        )
        self._table = FeatureTable()
        self._waiting: list[tuple[FloatArray, Any]] = []

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def features(self) -> list[Any]:
        """The name of each input of ``classifier``."""
        return self._table.names

    def rows(self, X: Any) -> FloatArray:  # noqa: N803  (scikit-learn's name)
        """Dictionaries, or a data frame, as the array ``[N, F]`` that ``classifier`` takes."""
        if not self._has_learned():
            raise InputError("nothing was learned yet: there are no inputs to put values into")
        if isinstance(X, pd.DataFrame):
            rows = self._table.rows(frame_values(X), X.columns)
        else:
            each = [self._table.row(present(x)) for x in X]
            rows = np.array(each).reshape(len(each), len(self._table))
        return _of_width(rows, self.classifier.n_features_in_)

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Learn one example, or keep it until there are ``batch_size`` of them."""
        check_count("batch_size", self.batch_size)
        there, label = present(x), plain_labels([y])
        self._met().extended(label)  # refuses what cannot be a label beside the others
        with self._all_or_nothing():
            self._meet(there)
            self._learn(self._table.row(there)[None], label)

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:  # noqa: N803
        """Learn the rows as ``learn_one`` would, one after the other."""
        check_count("batch_size", self.batch_size)
        values, labels, names = frame_values(X), plain_labels(y), list(X.columns)
        if len(values) != len(labels):
            raise InputError(f"there are {len(values)} rows and {len(labels)} labels")
        self._met().extended(labels)
        parts = list(_emergences(values, names, known=self._table.slots))
        with self._all_or_nothing(), self._steps_undone(if_several=len(parts) > 1):
            for rows, new in parts:
                self._meet(new)
                self._learn(self._table.rows(values[rows], names), labels[rows])

    @only_if(can_forget)
    def forget(self, cls: Any) -> None:
        """Remove a label, or several, learned or waiting, as if no example had come with it.

        ``classifier.forget``, which this calls, knows nothing of examples that wait.
        """
        gone = plain_labels(cls)
        self._met().encode(gone)  # refuses those that never came
        if self._knows_labels():
            learned = gone[np.isin(gone, self.classifier.classes_)]
            if len(learned):
                self.classifier.forget(cls=learned)
        self._waiting = [(row, label) for row, label in self._waiting if label not in gone]

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """The probability of every label met so far; before the first, an empty dictionary."""
        del kwargs
        labels, probability = self._probabilities([x])
        return dict(zip(labels, probability[0].tolist(), strict=True))

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:  # noqa: N803
        """The probability of every label met so far, a column each."""
        labels, probability = self._probabilities(X)
        return pd.DataFrame(probability, index=X.index, columns=labels)

    def predict_many(self, X: pd.DataFrame) -> pd.Series:  # noqa: N803
        """The most probable label of each row; ``None`` before the first was met."""
        labels, probability = self._probabilities(X)
        if not labels:
            return pd.Series([None] * len(X), index=X.index, dtype=object)
        return pd.Series([labels[best] for best in probability.argmax(axis=1)], index=X.index)

    def _meet(self, names: Iterable[Any]) -> None:
        """Have inputs for these features: if there are too few, twice as many as before."""
        wanted = len(self._table.slots.keys() | set(names))
        if self._has_learned() and wanted > (now := self.classifier.n_features_in_):
            widen(self.classifier, max(wanted, 2 * now))
        self._table.add(names)

    def _learn(self, rows: FloatArray, labels: Labels) -> None:
        """Take the steps for which there are examples enough; the others wait."""
        # Copies: a view would keep all of ``rows``, whatever is forgotten of it.
        new = [(row.copy(), label) for row, label in zip(rows, labels, strict=True)]
        examples = [*self._waiting, *new]
        ready = len(examples) // self.batch_size * self.batch_size
        if ready:
            self._step(examples[:ready])
        self._waiting = examples[ready:]

    def _step(self, going: list[tuple[FloatArray, Any]]) -> None:
        width = self.classifier.n_features_in_ if self._has_learned() else max(len(self._table), 1)
        x = np.concatenate([_of_width(row[None], width) for row, _ in going])
        self.classifier.partial_fit(x, np.array([label for _, label in going]))

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """What fails within leaves inputs, features and waiting examples as they were."""
        waiting, features = self._waiting, len(self._table)
        try:
            with all_or_nothing(self.classifier):
                yield
        except BaseException:
            self._waiting = waiting
            self._table.keep(features)
            raise

    def _steps_undone(self, *, if_several: bool) -> AbstractContextManager[None]:
        """What fails within is unlearned; one call of ``partial_fit`` sees to that by itself."""
        if not (if_several and self._has_learned()):
            return nullcontext()
        return self.classifier.learner_.transaction()

    def _met(self) -> LabelTable:
        """The labels learned, and those that wait."""
        learned = self.classifier._labels if self._has_learned() else LabelTable.empty()
        if not self._waiting:
            return learned
        return learned.extended(np.array([label for _, label in self._waiting]))

    def _has_learned(self) -> bool:
        return "learner_" in vars(self.classifier)

    def _knows_labels(self) -> bool:
        """Whether it has learned some, and not forgotten them all."""
        return self._has_learned() and len(self.classifier.classes_) > 0

    def _probabilities(self, X: Any) -> tuple[list[Any], FloatArray]:  # noqa: N803
        """The labels met so far, and their probabilities ``[N, K]``: 0 for one that waits."""
        labels = self._met().labels
        if not self._knows_labels():
            return labels.tolist(), np.full((len(X), len(labels)), 1 / max(len(labels), 1))
        probability = np.zeros((len(X), len(labels)))
        if len(X) == 0:
            return labels.tolist(), probability
        known = np.searchsorted(labels, self.classifier.classes_)
        probability[:, known] = self.classifier.predict_proba(self.rows(X))
        return labels.tolist(), probability


def _of_width(rows: FloatArray, width: int) -> FloatArray:
    """Rows ``[N, F]`` with zeros added or further slots left out."""
    placed = np.zeros((len(rows), width))
    shared = min(width, rows.shape[1])
    placed[:, :shared] = rows[:, :shared]
    return placed


def _emergences(
    values: FloatArray, names: list[Any], known: Container[Any]
) -> Iterator[tuple[slice, list[Any]]]:
    """Split rows where features first have a value: the rows, and what is new with the first."""
    there = ~np.isnan(values)
    first = {
        name: int(column.argmax())
        for name, column in zip(names, there.T, strict=True)
        if name not in known and column.any()
    }
    starts = sorted({0, *first.values()})
    for begin, end in pairwise([*starts, len(values)]):
        yield slice(begin, end), [name for name, row in first.items() if row == begin]
