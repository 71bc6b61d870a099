"""A fitted classifier as an ONNX file: for inference where neither PyTorch nor Python is."""

import importlib
import json
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from deepccg.core import InputError
from deepccg.estimator.files import target_file
from deepccg.estimator.inference import Inference
from deepccg.records import write_atomically

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
