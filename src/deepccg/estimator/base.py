"""What the classifiers share: predictions, copies, files, and one learner underneath."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from deepccg.core import InputError, State, Task
from deepccg.estimator import hub, inspection, persistence
from deepccg.estimator.columns import Columns
from deepccg.estimator.features import FloatArray
from deepccg.estimator.inputs import check_inputs
from deepccg.estimator.inspection import ShiftMonitor, Table
from deepccg.estimator.labels import AnyTask, IntArray, LabelTable, task_labels
from deepccg.estimator.onnx_export import export_classifier
from deepccg.estimator.persistence import AnyPath
from deepccg.estimator.plain_labels import Labels, plain_labels
from deepccg.estimator.spec import LearnerSpec
from deepccg.estimator.turns import NAME as TURNS
from deepccg.estimator.turns import turns
from deepccg.learners.base import NetworkLearner

_NOT_COPIED = ("_shift_monitor", TURNS)
MAX_LOG_ODDS = 1e9  # of what is certain: finite, as scikit-learn requires


class StreamClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """A classifier around a learner. Subclasses add ``fit`` and ``partial_fit``.

    Attributes:
        classes_: The labels known, sorted; declared ones included.
        n_features_in_: How many numbers, or columns of a table, one input has.
        feature_names_in_: Names of the columns, where a data frame with names was learned.
        input_shape_: ``(F,)``, or ``(H, W, C)`` for images.
        learner_: The ``deepccg.Learner`` underneath.
    """

    classes_: Labels
    feature_names_in_: Labels
    input_shape_: tuple[int, ...]
    learner_: NetworkLearner[Any]
    n_features_in_: int
    _advice: frozenset[str]  # the warnings that were given
    _columns: Columns  # of vectors
    _labels: LabelTable
    _shift_monitor: ShiftMonitor
    _spec: LearnerSpec

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # What parameters mean

    @classmethod
    def spec_fields(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of ``LearnerSpec`` that these parameters mean."""
        return params

    def first_spec(self, x: Tensor, declared: int) -> LearnerSpec:
        """Return the spec for inputs like ``x``; the first ``declared`` codes are known."""
        return LearnerSpec.of(self.spec_fields(vars(self)), x, declared)

    @classmethod
    def spec_params(cls, spec: LearnerSpec, fields: Iterable[str]) -> dict[str, Any]:
        """Return the parameters that mean what ``spec`` has in these of its fields."""
        return {name: getattr(spec, name) for name in fields}

    def log_prior(self) -> FloatArray | None:
        """Return what is added to the learner's logits, ``[K]`` in the order of ``classes_``."""
        return None

    def set_params(self, **params: Any) -> Self:
        """Set parameters, between the calls of other threads."""
        with turns(self):
            super().set_params(**params)
        return self

    def predict(self, X: Any, task: AnyTask = None) -> Labels:  # noqa: N803
        """Return the most probable label of each example, ``[N]``; with a task, of its labels."""
        logits, labels = self._logits(X, task)
        best: Labels = labels[logits.argmax(axis=1)]
        return best

    def predict_log_proba(self, X: Any, task: AnyTask = None) -> FloatArray:  # noqa: N803
        """Return log probabilities ``[N, K]`` in the order of ``classes_``."""
        logits, _ = self._logits(X, task)
        total = np.logaddexp.reduce(logits, axis=1, keepdims=True)  # 100 us faster than SciPy's
        return np.asarray(logits - total)

    def predict_proba(self, X: Any, task: AnyTask = None) -> FloatArray:  # noqa: N803
        """Return probabilities ``[N, K]`` in the order of ``classes_``; 0 for classes not seen."""
        return np.exp(self.predict_log_proba(X, task))

    def decision_function(self, X: Any, task: AnyTask = None) -> FloatArray:  # noqa: N803
        """Return log odds of each class against the others, ``[N, K]``; ``[N]`` of two classes."""
        odds = log_odds(self._logits(X, task)[0])
        return odds[:, 1] if odds.shape[1] == 2 else odds

    @property
    def class_counts_(self) -> Table:
        """How many examples of each class were ``seen`` and are ``stored``, ``[K]``."""
        with turns(self):
            check_is_fitted(self)
            return inspection.class_counts(self.learner_, self._labels)

    def save(self, path: AnyPath) -> None:
        """Write the fitted classifier to one file of tensors and JSON, from which it continues."""
        persistence.save_classifier(path, self)

    def export(self, path: AnyPath, format: str = "onnx") -> None:  # noqa: A002
        """Write an ONNX file that predicts what this classifier predicts; it cannot learn.

        Its input ``x`` takes what ``predict_proba`` takes, any number of rows; its outputs are
        ``probabilities`` and ``label``, a position in the list of class labels that its metadata
        holds as JSON under ``classes``.

        Args:
            path: A file in a directory that exists.
            format: ``"onnx"``.
        """
        check_is_fitted(self)
        export_classifier(path, copy.deepcopy(self), format)  # which nothing changes meanwhile

    @classmethod
    def load(
        cls, path: AnyPath, *, encoder: nn.Module | None = None, device: str | None = None
    ) -> Self:
        """Return a saved classifier. Nothing in the file can run code.

        Args:
            path: What ``save`` wrote.
            encoder: The module, if it was made with one: a file holds its weights, not its code.
            device: Another device than it was on.
        """
        loaded = cls()
        persistence.load_classifier(path, loaded, encoder, device)
        return loaded

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
    ) -> str:
        """Put what ``save`` writes, and a model card, into a repository of the Hugging Face Hub.

        Args:
            repo_id: ``"owner/name"``; made if it is not there.
            private: Whether a new repository is private.
            revision: A branch; by default ``main``.
            token: By default that of ``hf auth login``.

        Returns:
            The address of the commit.
        """
        return hub.push(self, repo_id, private=private, revision=revision, token=token)

    @classmethod
    def from_hub(
        cls,
        repo_id: str,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        encoder: nn.Module | None = None,
        device: str | None = None,
    ) -> Self:
        """Return the classifier that ``push_to_hub`` has put there; see ``load``.

        Args:
            repo_id: ``"owner/name"``.
            revision: A branch, a tag or a commit; by default ``main``.
            token: Of private repositories.
            encoder: The module, if it was made with one.
            device: Another device than it was on.
        """
        path = hub.download(repo_id, revision=revision, token=token)
        return cls.load(path, encoder=encoder, device=device)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, the learner as its saved state: arrays and plain values."""
        with turns(self):
            state: dict[str, Any] = dict(super().__getstate__())
            if "learner_" in state:
                state["learner_"] = persistence.to_arrays(self.learner_.state_dict())
        return {name: value for name, value in state.items() if name not in _NOT_COPIED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "learner_" in state:
            self._rebuild(self._spec, persistence.from_arrays(state["learner_"]))

    def _rebuild(self, spec: LearnerSpec, state: State | None = None) -> None:
        """Replace the learner: the free slots of the old one may hold what was forgotten."""
        self._spec, self.learner_ = spec, spec.build(state)
        self.__dict__.pop("_shift_monitor", None)  # it follows examples of the old learner

    def _learn_labels(
        self, labels: Labels, x: Tensor, classes: Any, task: AnyTask = None
    ) -> tuple[LabelTable, IntArray, int, Task | None]:
        """Prepare to learn examples ``x`` of these labels; make the learner if there is none.

        Returns:
            The labels known with them, their codes ``[N]``, how many labels were declared, and the
            task of the labels that are possible.
        """
        first = "learner_" not in vars(self)
        table = LabelTable.empty() if first else self._labels
        if classes is not None:
            table = table.extended(plain_labels(classes))
        declared = len(table)
        if task is not None:
            table = table.extended(task_labels(task, of=labels))
        table, codes = table.coded(labels)
        if first:
            self._rebuild(self.first_spec(x, declared))
        else:
            self._spec.require_unchanged(self.spec_fields(vars(self)))
        return table, codes, declared, table.task(task)

    def _logits(self, X: Any, task: AnyTask) -> tuple[FloatArray, Labels]:  # noqa: N803
        """Return the learner's logits, ``[N, K]``, or -inf, and the label of each column."""
        with turns(self):
            check_is_fitted(self)
            table, x = self._labels, check_inputs(self, X, reset=False)
            own_task = table.task(task)
            raw = self.learner_.predict_logits(x, own_task).double().cpu().numpy()
            columns = self.learner_.columns(own_task)
            prior = self.log_prior()
        if (rows := np.isnan(raw.max(axis=1, initial=-np.inf))).any():
            raise InputError(
                f"the outputs for row {rows.argmax()} of X are not numbers: its values are too "
                f"large for this encoder; scale the inputs"
            )
        logits = np.full((len(x), len(table)), -np.inf)
        logits[:, table.positions(columns)] = raw
        return logits if prior is None else logits + prior, table.labels


def log_odds(logits: FloatArray) -> FloatArray:
    """Return ``log p_c / (1 - p_c)`` of ``logits [N, K]``, exact also where p_c is nearly 1.

    >>> log_odds(np.log([[0.2, 0.8]])).round(4).tolist()
    [[-1.3863, 1.3863]]
    """
    best = logits.argmax(axis=1)[:, None]
    others = logits.copy()
    np.put_along_axis(others, best, -np.inf, axis=1)
    others_total = np.logaddexp.reduce(others, axis=1, keepdims=True)
    total = np.logaddexp(others_total, np.take_along_axis(logits, best, axis=1))
    odds = others - total - np.log1p(-np.exp(others - total))  # here p_c is at most a half
    np.put_along_axis(odds, best, np.take_along_axis(logits, best, axis=1) - others_total, axis=1)
    return np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS)
