"""Pretrained encoders by name: ``timm:NAME`` and ``hf:NAME``, where these libraries are."""

import functools
import importlib
from typing import Any

from torch import Tensor, nn

from deepccg.core import InputError
from deepccg.networks.pretrained import PretrainedEncoder

_PACKAGES = {"timm": "timm", "hf": "transformers"}


def is_named_encoder(name: object) -> bool:
    """Whether ``name`` is of the form ``timm:NAME`` or ``hf:NAME``."""
    return isinstance(name, str) and name.partition(":")[0] in _PACKAGES and ":" in name


@functools.lru_cache(maxsize=1)  # a copy of a classifier asks again
def named_encoder(name: str) -> PretrainedEncoder:
    """Return the pretrained encoder that ``timm:NAME`` or ``hf:NAME`` names, with preprocessing.

    Weights are loaded, and downloaded where they are not yet, by ``timm`` or ``transformers``.
    """
    library, _, model = name.partition(":")
    package = _PACKAGES[library]
    try:
        module = importlib.import_module(package)
    except ImportError:
        raise InputError(f"the encoder {name} needs {package}: pip install {package}") from None
    try:
        return (_from_timm if library == "timm" else _from_transformers)(module, model, name)
    except InputError:
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"the encoder {name} cannot be loaded: {reason}") from error


def _from_timm(timm: Any, model: str, name: str) -> PretrainedEncoder:
    network = timm.create_model(model, pretrained=True, num_classes=0)  # 0: pooled features
    config = timm.data.resolve_model_data_config(network)
    return PretrainedEncoder(
        network,
        size=tuple(config["input_size"][1:]),
        mean=config["mean"],
        std=config["std"],
        interpolation="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
        name=name,
    )


def _from_transformers(transformers: Any, model: str, name: str) -> PretrainedEncoder:
    processor = transformers.AutoImageProcessor.from_pretrained(model)
    crops = getattr(processor, "do_center_crop", False)
    return PretrainedEncoder(
        Pooled(transformers.AutoModel.from_pretrained(model)),
        size=_sides(processor.crop_size if crops else processor.size),
        mean=processor.image_mean,
        std=processor.image_std,
        interpolation="bicubic" if getattr(processor, "resample", 3) == 3 else "bilinear",
        name=name,
    )


class Pooled(nn.Module):
    """One vector of an image: what the model pools, or else the mean of its tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """``[B, C, H, W] -> [B, D]``."""
        found = self.model(pixel_values=x)
        pooled = getattr(found, "pooler_output", None)
        vector: Tensor = found.last_hidden_state.mean(dim=1) if pooled is None else pooled
        return vector


def _sides(size: Any) -> tuple[int, int]:
    """Height and width of what ``transformers`` calls a size, a kind of dictionary."""
    both = [size.get(name) for name in ("height", "width")]
    shortest = size.get("shortest_edge")
    height, width = (shortest, shortest) if None in both else both
    return int(height), int(width)
