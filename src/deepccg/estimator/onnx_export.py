"""A fitted classifier as an ONNX file: for inference where neither PyTorch nor Python is."""

import copy
import importlib
import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepccg.core import InputError
from deepccg.estimator.persistence import target_file
from deepccg.learners.heads import HeadLearner
from deepccg.methods import ESMER, ICaRL, NetworkLearner, ProtoCL
from deepccg.methods.deepccg import DeepCCG
from deepccg.records import write_atomically

IMPOSSIBLE = -math.inf


@dataclass(frozen=True)
class Linear:
    """Logits ``weight (z - centre) + bias``, ``[C]``, of some of a learner's columns.

    Embeddings may lie far from the origin compared with their spread: the centre is taken off
    first, so that no digits are lost.
    """

    centre: Tensor  # [D]
    weight: Tensor  # [C, D]
    bias: Tensor  # [C]

    def module(self, places: Sequence[int], classes: int, dtype: torch.dtype) -> nn.Module:
        """The head with column i at ``places[i]`` of ``classes`` outputs; others are impossible."""
        head = nn.Linear(len(self.centre), classes, dtype=dtype)
        head.weight.data = _placed(self.weight, places, classes, 0.0).to(dtype)
        head.bias.data = _placed(self.bias, places, classes, IMPOSSIBLE).to(dtype)
        return nn.Sequential(_Shift(self.centre.to(dtype)), head)


@dataclass(frozen=True)
class Distances:
    """Logits ``constant - 1/2 sum_d precision_d (z_d - mean_d)^2`` of some of the columns."""

    mean: Tensor  # [C, D]
    precision: Tensor  # [C, D]
    constant: Tensor  # [C]

    def module(self, places: Sequence[int], classes: int, dtype: torch.dtype) -> nn.Module:
        """As ``Linear.module``."""
        return _Quadratic(
            _placed(self.mean, places, classes, 0.0).to(dtype),
            _placed(self.precision, places, classes, 0.0).to(dtype),
            _placed(self.constant, places, classes, IMPOSSIBLE).to(dtype),
        )


class Inference(nn.Module):
    """Raw inputs to probabilities ``[B, K]`` and the most probable column ``[B]``.

    Args:
        learner: What was trained; it is copied.
        places: Where each of the learner's columns stands among the ``classes`` outputs.
        classes: K.
    """

    def __init__(self, learner: NetworkLearner[Any], places: Sequence[int], classes: int) -> None:
        super().__init__()
        network = learner.stable.network if _uses_stable(learner) else learner.network
        self.network = copy.deepcopy(network).cpu().eval().requires_grad_(False)
        self.dtype = learner.dtype
        self.unit = isinstance(learner, ICaRL) or _normalises(learner)
        columns, head = _head(learner)
        module = head.module([places[column] for column in columns], classes, learner.dtype)
        self.head = module.requires_grad_(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``[B, F]``, or images ``[B, H, W, C]``."""
        if x.ndim == 4:
            x = x.permute(0, 3, 1, 2)
        if x.is_floating_point():
            x = x.to(self.dtype)
        z = self.network(x)
        logits = self.head(F.normalize(z, dim=1) if self.unit else z)
        return torch.softmax(logits, dim=1), logits.argmax(dim=1)


def _head(learner: NetworkLearner[Any]) -> tuple[list[int], Linear | Distances]:
    """Which columns are possible, and the classifier of these, in float64 on the CPU."""
    seen = learner.class_table.seen > 0
    if not bool(seen.any()):
        raise InputError("nothing was learned yet: there is no class to predict")
    known = seen
    build: Callable[[Any, Tensor], Linear | Distances]
    if isinstance(learner, DeepCCG):
        known, build = seen & (learner.current_classifier().posterior.count.cpu() > 0), _gaussian
    elif isinstance(learner, ICaRL):
        known, build = seen & learner.means()[1].cpu(), _exemplars
    elif isinstance(learner, ProtoCL):
        build = _prototypes
    elif isinstance(learner, HeadLearner):
        build = _linear
    else:
        raise InputError(f"{type(learner).__name__} predicts under a task only: export another")
    if not bool(known.any()):  # nothing is stored
        known, build = seen, _uniform
    with torch.no_grad():
        return known.nonzero().flatten().tolist(), build(learner, known)


def _gaussian(learner: Any, known: Tensor) -> Linear | Distances:
    """Eq. 8. With one variance for all classes, ``-|z - m_c|^2`` is linear, up to ``|z|^2``."""
    posterior, scale = (
        learner.current_classifier().posterior,
        _double(learner.current_classifier().scale),
    )
    mean, count = _double(posterior.mean)[known], _double(posterior.count)[known]
    if learner.config.variance == "shared":
        sharpness = scale.square() / (1 + 1 / count.mean())
        centre = mean.mean(dim=0)
        away = mean - centre
        return Linear(centre, sharpness * away, -0.5 * sharpness * away.square().sum(dim=1))
    spread = 1 + 1 / count
    precision = (scale.square() / spread)[:, None].expand_as(mean)
    return Distances(mean, precision, -0.5 * learner.dim * spread.log())


def _exemplars(learner: Any, known: Tensor) -> Distances:
    mean = _double(learner.means()[0])[known]
    return Distances(mean, torch.full_like(mean, 2.0), mean.new_zeros(len(mean)))


def _prototypes(learner: Any, known: Tensor) -> Distances:
    belief = learner.current_classifier()
    spread = _double(belief.prototypes.variance + belief.noise)[known]
    constant = _double(belief.log_share)[known] - 0.5 * spread.log().sum(dim=1)
    return Distances(_double(belief.prototypes.mean)[known], 1 / spread, constant)


def _linear(learner: Any, known: Tensor) -> Linear:
    head = learner.stable.head if _uses_stable(learner) else learner.head
    weight, bias = _double(head.weight)[known], _double(head.bias)[known]
    return Linear(weight.new_zeros(learner.dim), weight, bias)


def _uniform(learner: Any, known: Tensor) -> Linear:
    nothing = torch.zeros(int(known.sum()), learner.dim, dtype=torch.float64)
    return Linear(nothing.new_zeros(learner.dim), nothing, nothing.sum(dim=1))


def _uses_stable(learner: NetworkLearner[Any]) -> TypeGuard[ESMER]:
    return isinstance(learner, ESMER) and learner.config.predict_with == "stable"


def _normalises(learner: NetworkLearner[Any]) -> bool:
    return isinstance(learner, DeepCCG | ProtoCL) and learner.config.normalise


class _Shift(nn.Module):
    def __init__(self, centre: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)

    def forward(self, z: Tensor) -> Tensor:
        return z - self.get_buffer("centre")


class _Quadratic(nn.Module):
    def __init__(self, mean: Tensor, precision: Tensor, constant: Tensor) -> None:
        super().__init__()
        for name, value in (("mean", mean), ("precision", precision), ("constant", constant)):
            self.register_buffer(name, value)

    def forward(self, z: Tensor) -> Tensor:
        mean, precision, constant = (self.get_buffer(n) for n in ("mean", "precision", "constant"))
        away = (z[:, None] - mean).square()
        return constant - 0.5 * (away * precision).sum(dim=2)


def _double(values: Tensor) -> Tensor:
    return values.detach().cpu().double()


def _placed(values: Tensor, places: Sequence[int], classes: int, missing: float) -> Tensor:
    rows = values.new_full((classes, *values.shape[1:]), missing)
    rows[list(places)] = values
    return rows


OPSET = 18  # of the ONNX operators
TOLERANCE = 1e-3  # in a probability, before a file is refused
CHECKED = 16  # examples on which file and classifier are compared

_NOISY = "torch.onnx._internal.exporter._registration"  # warns that torchvision is not there


def export_estimator(path: str | os.PathLike[str], estimator: Any, kind: str) -> None:
    """See ``DeepCCGClassifier.export``."""
    if kind != "onnx":
        raise InputError(f"format is {kind!r}: only 'onnx' can be written")
    target = target_file(path)
    _require_extra()
    content = _onnx_bytes(estimator)
    _compare(content, estimator)
    write_atomically(target, content)


def _require_extra() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):  # the first two are torch.onnx's
        try:
            importlib.import_module(name)
        except ImportError:
            raise InputError(f"exporting needs {name}: pip install 'deepccg[onnx]'") from None


def _onnx_bytes(estimator: Any) -> bytes:
    """The model as one self-contained message."""
    places = estimator._column_positions().tolist()
    model = Inference(estimator.learner_, places, len(estimator.classes_))
    example = torch.from_numpy(_random_inputs(estimator, 2))
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                model,
                (example,),
                dynamo=True,
                input_names=["x"],
                output_names=["probabilities", "label"],
                dynamic_shapes=({0: torch.export.Dim("N")},),
                opset_version=OPSET,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        cause = error.__cause__ or error
        reason = next(filter(None, map(str.strip, str(cause).splitlines())), "unknown")
        raise InputError(f"the encoder cannot be written as ONNX: {reason}") from error
    assert program is not None  # noqa: S101  (it is only where torch.onnx writes the file)
    proto = program.model_proto
    _strip(proto)
    proto.producer_name, proto.producer_version = "deepccg", ""
    for key, value in _about(estimator).items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    return bytes(proto.SerializeToString())


def _about(estimator: Any) -> dict[str, str]:
    """What a program that reads the file must know besides the graph."""
    try:
        labels = json.dumps(estimator.classes_.tolist(), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"a label cannot be written as JSON ({error})") from None
    return {"classes": labels, "method": estimator._plan.method}


def _strip(message: Any) -> None:
    """Remove notes for debugging, which hold names of files on this machine."""
    for field, value in message.ListFields():
        if field.name in ("doc_string", "metadata_props"):
            message.ClearField(field.name)
        elif field.message_type is not None:
            for each in value if isinstance(value, Sequence) else [value]:
                _strip(each)


def _compare(content: bytes, estimator: Any) -> None:
    """Refuse a file whose probabilities are not the classifier's."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as ort

    refusals = (
        ort.Fail, ort.InvalidArgument, ort.InvalidGraph, ort.NotImplemented, ort.RuntimeException,
    )  # fmt: skip
    stored = estimator.memory_["x"][:CHECKED]
    random = _random_inputs(estimator, CHECKED)
    x = stored.astype(random.dtype) if len(stored) else random
    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        found = session.run(["probabilities"], {"x": x})[0]
    except refusals as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"onnxruntime cannot run this encoder: {reason}") from None
    apart = float(np.abs(found - estimator.predict_proba(x)).max())
    if not apart < TOLERANCE:
        raise InputError(
            f"as ONNX this encoder gives probabilities that differ by {apart:.2g}: it cannot be "
            f"exported; does it depend on the batch, or draw random numbers?"
        )


def _random_inputs(estimator: Any, count: int) -> npt.NDArray[Any]:
    """Inputs of the form the classifier takes, ``[count, ...]``."""
    shape = (count, *estimator.input_shape_)
    random = np.random.default_rng(0)
    if estimator.learner_.inputs.kind == "uint8":
        return random.integers(0, 256, size=shape, dtype=np.uint8)
    return random.normal(size=shape).astype(np.float64 if estimator._plan.double else np.float32)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on its own inner workings."""
    logger = logging.getLogger(_NOISY)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(before)
