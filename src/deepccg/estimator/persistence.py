"""A fitted classifier in one safe file: safetensors, and everything else as JSON."""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from deepccg.core import InputError, State, StateMismatch
from deepccg.estimator.labels import LabelTable, TaskTable
from deepccg.estimator.spec import Plan
from deepccg.learners.state_file import load_state, save_state


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """What fails within leaves every attribute as it was before, or absent as it was.

    What an attribute refers to must be replaced, not changed; a learner that goes on learning has
    its own ``all_or_nothing``.
    """
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


FORMAT = 1  # of what is said beside the learner's state

AnyPath = str | os.PathLike[str]


def save_estimator(path: AnyPath, estimator: Any) -> None:
    """Write what ``load_estimator`` needs; the file appears at once or not at all."""
    target = target_file(path)
    state = estimator.learner_.state_dict()
    if bad := state.not_finite():
        raise InputError(f"{bad[0]} is not finite, and {path} could not be loaded: it is not saved")
    plan, labels = estimator._plan, estimator._labels
    names = vars(estimator).get("feature_names_in_")
    about = {
        "estimator": FORMAT,
        "params": _plain_params(estimator.get_params(deep=False)),
        "plan": _plain_params({f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}),
        "labels": labels.labels.tolist(),
        "label_type": labels.labels.dtype.str,
        "codes": labels.codes.tolist(),
        "tasks": estimator._tasks.tasks,
        "input_shape": list(estimator.input_shape_),
        "n_features_in": int(estimator.n_features_in_),
        "feature_names": None if names is None else names.tolist(),
        "frozen": _frozen(estimator.learner_.network) if plan.encoder_is_own else [],
    }
    try:
        save_state(target, state, about)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a parameter or label cannot be written as JSON ({error}): use numbers and strings"
        ) from None


def target_file(path: AnyPath) -> Path:
    """Where a file can be written."""
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"there is no directory {target.parent}")
    if target.is_dir():
        raise InputError(f"{target} is a directory: give the name of a file")
    return target


def load_estimator(
    path: AnyPath, empty: Any, encoder: nn.Module | None, device: str | None
) -> None:
    """Make the unfitted estimator ``empty`` what was saved; see ``DeepCCGClassifier.load``."""
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    state, about = load_state(Path(path))
    if about.get("estimator") != FORMAT:
        raise StateMismatch(
            f"{path} holds no classifier that this version reads; a run is read by deepccg.load"
        )
    try:
        given = _given(about, encoder, device)
        _restore(empty, state, about, given)
    except (KeyError, TypeError, IndexError) as error:
        raise StateMismatch(f"{path} is incomplete: {error!r}") from None


def as_arrays(state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """A learner's state for pickling; unlike tensors, equal arrays give equal bytes."""
    tensors = {name: tensor.cpu() for name, tensor in state.tensors.items()}
    # NumPy has no bfloat16, the one type that an encoder may be in and it does not know.
    arrays = {n: t if t.dtype == torch.bfloat16 else t.numpy() for n, t in tensors.items()}
    return arrays, state.meta


def as_tensors(pickled: tuple[dict[str, Any], dict[str, Any]]) -> State:
    """What ``as_arrays`` was given."""
    arrays, meta = pickled
    return State({name: torch.as_tensor(value) for name, value in arrays.items()}, meta)


def _given(about: Mapping[str, Any], encoder: nn.Module | None, device: str | None) -> Any:
    """What replaces the file's values: the module it cannot hold, another device."""
    named = about["plan"]["encoder"]
    if named is None and encoder is None:
        raise InputError("this classifier has an encoder of your own: pass encoder=the module")
    if named is not None and encoder is not None:
        raise InputError(f"this classifier was saved with the encoder {named!r}: pass none")
    given: dict[str, Any] = {} if encoder is None else {"encoder": encoder}
    return given if device is None else {**given, "device": device}


def _restore(empty: Any, state: State, about: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    empty.set_params(**{**about["params"], **given})
    lists = {"shape": tuple(about["plan"]["shape"]), "classes": tuple(about["plan"]["classes"])}
    plan = Plan(**{**about["plan"], **lists, **given})
    if plan.encoder_is_own:
        plan = plan.with_frozen(about.get("frozen"))
    learner = plan.build()
    learner.load_state_dict(state)
    labels = np.array(about["labels"], dtype=np.dtype(about["label_type"]))
    codes = np.array(about["codes"], dtype=np.int64)
    if len(labels) != len(codes) or sorted(codes) != list(range(len(codes))):
        raise StateMismatch("the file's labels and codes do not fit together")
    empty._plan, empty._labels, empty._tasks = plan, LabelTable(labels, codes), TaskTable()
    empty._tasks.tasks = [tuple(task) for task in about["tasks"]]
    empty.classes_ = labels
    empty.input_shape_ = tuple(about["input_shape"])
    empty.n_features_in_ = about["n_features_in"]
    if about["feature_names"] is not None:
        empty.feature_names_in_ = np.array(about["feature_names"], dtype=object)
    empty.learner_ = learner


def _frozen(network: nn.Module) -> list[str]:
    """Parameters of an own encoder that do not learn, by the module's names for them."""
    module = network.get_submodule("module")
    return [name for name, p in module.named_parameters() if not p.requires_grad]


def _plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON values; a module, or a generator as ``random_state``, is left out."""
    plain = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in params.items()
    }
    for name, kept in (("encoder", str), ("random_state", int)):
        if name in plain and not isinstance(plain[name], kept):
            plain[name] = None
    return plain
