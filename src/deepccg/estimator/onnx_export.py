"""A fitted classifier as an ONNX file: for inference where neither PyTorch nor Python is."""

import importlib
import json
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepccg.core import InputError
from deepccg.estimator import inspection
from deepccg.estimator.features import FloatArray
from deepccg.estimator.inputs import known_columns
from deepccg.estimator.labels import IntArray
from deepccg.estimator.persistence import AnyPath, check_target
from deepccg.methods import NetworkLearner
from deepccg.records import write_atomically

if TYPE_CHECKING:
    from deepccg.estimator.base import StreamClassifier

OPSET = 18  # of the ONNX operators
TOLERANCE = 1e-3  # in a probability, before a file is refused
CHECKED = 16  # examples on which file and classifier are compared

_NOISY_LOGGER = "torch.onnx._internal.exporter._registration"  # warns that torchvision is missing


class Inference(nn.Module):
    """Raw inputs to probabilities ``[B, K]`` and the most probable class ``[B]``.

    Args:
        learner: What was trained; it is copied.
        positions: Of each of the learner's columns among the K classes.
        classes: K.
        mean: What stands for a missing number, ``[F]``; of images, nothing.
        prior: What is added to the logits, ``[K]``.
    """

    column: Tensor  # [K], of each class among the learner's
    mean: Tensor | None
    prior: Tensor | None

    def __init__(
        self,
        learner: NetworkLearner[Any],
        positions: IntArray,
        classes: int,
        mean: FloatArray | None = None,
        prior: FloatArray | None = None,
    ) -> None:
        super().__init__()
        seen = learner.class_table.seen > 0
        if not bool(seen.any()):
            raise InputError("nothing was learned yet: there is no class to predict")
        self.dtype = learner.dtype
        self.model = learner.readout.inference_module()
        column = torch.full((classes,), len(seen))  # one that is added for classes never seen
        column[torch.from_numpy(positions)[seen]] = seen.nonzero().flatten()
        self.register_buffer("column", column)
        for name, values in (("mean", mean), ("prior", prior)):
            own = None if values is None else torch.tensor(values).to(self.dtype)
            self.register_buffer(name, own)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``[B, F]``, or images ``[B, H, W, C]``."""
        if x.ndim == 4:
            x = x.permute(0, 3, 1, 2)
        if x.is_floating_point():
            x = x.to(self.dtype)
        if self.mean is not None:
            x = torch.where(x.isnan(), self.mean, x)
        logits = F.pad(self.model(x), (0, 1), value=-math.inf)[:, self.column]
        if self.prior is not None:
            logits = logits + self.prior
        return torch.softmax(logits, dim=1), logits.argmax(dim=1)


def export_classifier(path: AnyPath, classifier: "StreamClassifier", kind: str) -> None:
    """See ``StreamClassifier.export``."""
    if kind != "onnx":
        raise InputError(f"format is {kind!r}: only 'onnx' can be written")
    target = check_target(path)
    if len(classifier.input_shape_) == 1 and known_columns(classifier).texts:
        raise InputError(
            "columns of text or categories cannot be exported: encode them before they come here, "
            "by sklearn.preprocessing.OneHotEncoder for example"
        )
    _require_extra()
    content = _onnx_bytes(classifier)
    _compare(content, classifier)
    write_atomically(target, content)


def _require_extra() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):  # the first two are torch.onnx's
        try:
            importlib.import_module(name)
        except ImportError:
            raise InputError(f"exporting needs {name}: pip install 'deepccg[onnx]'") from None


def _onnx_bytes(classifier: "StreamClassifier") -> bytes:
    """Return the model as one self-contained message."""
    positions = classifier._labels.positions(classifier.learner_.classes)
    mean = known_columns(classifier).mean if len(classifier.input_shape_) == 1 else None
    prior = classifier.log_prior()
    model = Inference(classifier.learner_, positions, len(classifier.classes_), mean, prior)
    example = torch.from_numpy(_random_inputs(classifier, 2))
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
    for key, value in _about(classifier).items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    return bytes(proto.SerializeToString())


def _about(classifier: "StreamClassifier") -> dict[str, str]:
    """Return the metadata that a reader of the file needs."""
    try:
        labels = json.dumps(classifier.classes_.tolist(), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"a label cannot be written as JSON ({error})") from None
    return {"classes": labels, "method": classifier._spec.method}


def _strip(message: Any) -> None:
    """Remove debugging notes, which hold names of files on this machine."""
    for field, value in message.ListFields():
        if field.name in ("doc_string", "metadata_props"):
            message.ClearField(field.name)
        elif field.message_type is not None:
            for each in value if isinstance(value, Sequence) else [value]:
                _strip(each)


def _compare(content: bytes, classifier: "StreamClassifier") -> None:
    """Reject a file whose probabilities are not the classifier's."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as ort

    refusals = (
        ort.Fail, ort.InvalidArgument, ort.InvalidGraph, ort.NotImplemented, ort.RuntimeException,
    )  # fmt: skip
    stored = inspection.stored_examples(classifier.learner_, classifier._labels)["x"][:CHECKED]
    random = _random_inputs(classifier, CHECKED)
    x = stored.astype(random.dtype) if len(stored) else random
    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        found = session.run(["probabilities"], {"x": x})[0]
    except refusals as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"onnxruntime cannot run this encoder: {reason}") from None
    apart = float(np.abs(found - classifier.predict_proba(x)).max())
    if not apart < TOLERANCE:
        raise InputError(
            f"as ONNX this encoder gives probabilities that differ by {apart:.2g}: it cannot be "
            f"exported; does it depend on the batch, or draw random numbers?"
        )


def _random_inputs(classifier: "StreamClassifier", count: int) -> npt.NDArray[Any]:
    """Return inputs of the form the classifier takes, ``[count, ...]``."""
    shape = (count, *classifier.input_shape_)
    random = np.random.default_rng(0)
    if classifier.learner_.inputs.kind == "uint8":
        return random.integers(0, 256, size=shape, dtype=np.uint8)
    return random.normal(size=shape).astype(np.float64 if classifier._spec.double else np.float32)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks on its internals."""
    logger = logging.getLogger(_NOISY_LOGGER)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(before)
