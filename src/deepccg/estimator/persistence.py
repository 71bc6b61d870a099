"""A fitted classifier in one safe file, safetensors and JSON; and rollback of failed calls."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from deepccg.core import InputError, State, StateMismatch
from deepccg.estimator.inputs import known_columns
from deepccg.estimator.saved_header import FIRST_CLASSIFIER, SavedHeader, require_same_classes
from deepccg.estimator.turns import turns
from deepccg.learners.state import BROKEN_STATE
from deepccg.learners.state_file import load_state, save_state
from deepccg.networks import PretrainedEncoder

if TYPE_CHECKING:
    from deepccg.estimator.base import StreamClassifier

FORMAT = 1  # of what is written beside the learner's state

AnyPath = str | os.PathLike[str]


@contextmanager
def transaction(estimator: object) -> Iterator[None]:
    """Change an estimator while no other thread does, and restore every attribute on failure.

    Attributes must be replaced, not changed in place; a learner that continues has its own
    transaction.
    """
    with turns(estimator):
        before = dict(vars(estimator))
        try:
            yield
        except BaseException:
            # One by one: other threads may read parameters, which are never gone.
            for name in vars(estimator).keys() - before.keys():
                delattr(estimator, name)
            vars(estimator).update(before)
            raise


def save_classifier(path: AnyPath, model: "StreamClassifier") -> None:
    """Write a fitted classifier; the file is replaced atomically or not at all."""
    target = check_target(path)
    with turns(model):  # not while the file is written: a disk may be slow
        check_is_fitted(model)
        state, about = model.learner_.state_dict(), _about(model)
    if bad := state.not_finite():
        raise InputError(f"{bad[0]} is not finite, and {path} could not be loaded: it is not saved")
    try:
        save_state(target, state, about)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a parameter or label cannot be written as JSON ({error}): use numbers and strings"
        ) from None


def load_classifier(
    path: AnyPath, empty: "StreamClassifier", encoder: nn.Module | None, device: str | None
) -> None:
    """Make the unfitted ``empty`` what was saved; see ``StreamClassifier.load``."""
    state, about = _read(path)
    _load(path, state, about, empty, encoder, device)


def load_any_classifier(
    path: AnyPath, encoder: nn.Module | None, device: str | None
) -> "StreamClassifier":
    """Return the classifier that a file holds, of whichever class."""
    from deepccg.estimator import CCGClassifier, DeepCCGClassifier  # which need this module

    state, about = _read(path)
    kinds: dict[Any, type[StreamClassifier]] = {
        kind.__name__: kind for kind in (CCGClassifier, DeepCCGClassifier)
    }
    name = about.get("classifier", FIRST_CLASSIFIER)
    if name not in kinds:
        raise StateMismatch(f"{path} holds a {name}, which this version does not have")
    loaded = kinds[name]()
    _load(path, state, about, loaded, encoder, device)
    return loaded


def _read(path: AnyPath) -> tuple[State, dict[str, Any]]:
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    state, about = load_state(Path(path))
    if about.get("estimator") != FORMAT:
        raise StateMismatch(
            f"{path} holds no classifier that this version reads; a run is read by deepccg.load, "
            f"from its directory"
        )
    return state, about


def _load(
    path: AnyPath,
    state: State,
    about: Mapping[str, Any],
    empty: "StreamClassifier",
    encoder: nn.Module | None,
    device: str | None,
) -> None:
    try:
        header = SavedHeader.of(about)
        _restore(empty, state, header, _overrides(header, encoder, device))
    except StateMismatch as error:
        raise StateMismatch(f"{path} cannot be loaded: {error}") from None
    except InputError:
        raise
    except BROKEN_STATE as error:  # what no check foresaw
        raise StateMismatch(f"{path} cannot be loaded: {error!r}") from error


def check_target(path: AnyPath) -> Path:
    """Return the path of a file that can be written."""
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"there is no directory {target.parent}")
    if target.is_dir():
        raise InputError(f"{target} is a directory: give the name of a file")
    return target


def to_arrays(state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a learner's state for pickling; unlike tensors, equal arrays give equal bytes."""
    tensors = {name: tensor.cpu() for name, tensor in state.tensors.items()}
    # NumPy has no bfloat16, the one type of an encoder that it does not know.
    arrays = {n: t if t.dtype == torch.bfloat16 else t.numpy() for n, t in tensors.items()}
    return arrays, state.meta


def from_arrays(pickled: tuple[dict[str, Any], dict[str, Any]]) -> State:
    """Invert ``to_arrays``."""
    arrays, meta = pickled
    return State({name: torch.as_tensor(value) for name, value in arrays.items()}, meta)


def _overrides(
    header: SavedHeader, encoder: nn.Module | None, device: str | None
) -> dict[str, Any]:
    """Return what replaces the file's values: the module it cannot hold, another device."""
    saved = header.plan.encoder
    known = header.pretrained
    if known is not None and saved is None and not isinstance(encoder, PretrainedEncoder):
        raise InputError(
            f"this classifier has the pretrained encoder {known!r}, whose weights are not in the "
            f"file: pass encoder=that PretrainedEncoder"
        )
    if saved is None and encoder is None:
        raise InputError("this classifier has an encoder of your own: pass encoder=the module")
    if saved is not None and encoder is not None:
        raise InputError(f"this classifier was saved with the encoder {saved!r}: pass none")
    if device is not None and "device" not in header.params:
        raise InputError(f"a {header.classifier} is on the CPU: pass no device")
    given = {"encoder": encoder, "device": device}
    return {name: value for name, value in given.items() if value is not None}


def _restore(
    model: "StreamClassifier", state: State, header: SavedHeader, overrides: Mapping[str, Any]
) -> None:
    if (wanted := type(model).__name__) != header.classifier:
        raise StateMismatch(f"it holds a {header.classifier}, not a {wanted}")
    spec = header.plan.spec(overrides).with_frozen(header.frozen)
    if unknown := header.params.keys() - model.get_params(deep=False).keys():
        raise StateMismatch(f"it has parameters that there are not: {sorted(unknown)}")
    model.set_params(**header.usable_params(type(model), spec, overrides))
    table = header.table()
    model._rebuild(spec, state)
    require_same_classes(model.learner_, table, spec)
    model._labels, model.classes_ = table, table.labels
    model.input_shape_, model.n_features_in_ = tuple(header.input_shape), header.n_features_in
    if header.feature_names is not None:
        model.feature_names_in_ = np.array(header.feature_names, dtype=object)
    if header.columns is not None:
        model._columns = header.columns.columns()


def _about(model: "StreamClassifier") -> dict[str, Any]:
    """Return what a file holds beside the learner's state."""
    spec, labels = model._spec, model._labels
    names, kind = vars(model).get("feature_names_in_"), type(model).__name__
    columns = known_columns(model) if len(model.input_shape_) == 1 else None
    return {
        "estimator": FORMAT,
        **({} if kind == FIRST_CLASSIFIER else {"classifier": kind}),
        "params": _plain_params(model.get_params(deep=False)),
        "plan": _plain_params(vars(spec)),
        "labels": labels.labels.tolist(),
        "label_type": labels.labels.dtype.str,
        "codes": labels.codes.tolist(),
        "tasks": labels.tasks,
        "input_shape": list(model.input_shape_),
        "n_features_in": int(model.n_features_in_),
        "feature_names": None if names is None else names.tolist(),
        "columns": None if columns is None else columns.to_json(),
        "frozen": _frozen_parameters(model),
        **_pretrained_name(model),
    }


def _frozen_parameters(model: "StreamClassifier") -> list[str]:
    """Return the names of the parameters of the user's module, if any, that are not trained."""
    if isinstance(model._spec.encoder, str | PretrainedEncoder):
        return []
    module = model.learner_.network.get_submodule("module")
    return [name for name, p in module.named_parameters() if not p.requires_grad]


def _pretrained_name(model: "StreamClassifier") -> dict[str, str]:
    network = model.learner_.network
    return {"pretrained": network.name} if isinstance(network, PretrainedEncoder) else {}


def _plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON values; a module, or a generator as ``random_state``, is left out."""
    plain = {n: v.item() if isinstance(v, np.generic) else v for n, v in params.items()}
    for name, kept in (("encoder", str), ("random_state", int)):
        if name in plain and not isinstance(plain[name], kept):
            plain[name] = None
    return plain
