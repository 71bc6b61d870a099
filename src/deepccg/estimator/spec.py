"""Which questions a classifier can be asked depends on its method."""

import copy
import dataclasses
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from sklearn.utils.metaestimators import available_if
from torch import nn

from deepccg.core import InputError, validated
from deepccg.estimator.encoders import build_encoder
from deepccg.gaussian import kernels
from deepccg.methods import METHODS, NetworkLearner
from deepccg.methods.deepccg import DeepCCG

# What the classifiers set where nobody does: a stream may change what a class is.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {"deepccg": {"renewal": "errors"}}


@dataclass(frozen=True)
class Plan:
    """What an estimator's parameters and first data say about its learner.

    Args:
        method: A name of ``METHODS``.
        method_params: Fields of the method.
        encoder: A name, or a module.
        encoder_params: Fields of ``NetworkConfig``.
        memory: Examples that may be stored, in total.
        device: Where the learner lives.
        shape: The shape of one input, ``[F]`` or ``[C, H, W]``.
        double: Whether the inputs are float64.
        classes: Codes known in advance.
        seed: Of every draw.
    """

    method: str
    method_params: Mapping[str, Any]
    encoder: str | nn.Module
    encoder_params: Mapping[str, Any]
    memory: int
    device: str
    shape: tuple[int, ...]
    double: bool
    classes: tuple[int, ...]
    seed: int

    def build(self) -> NetworkLearner[Any]:
        """A learner that has seen nothing."""
        chosen = learner_class(self.method)
        fields = validated(chosen.Config, self.method_params, "method_params")
        dtype = torch.float64 if self.double else torch.float32
        network = build_encoder(self.encoder, self.encoder_params, self.shape, dtype, self.seed)
        learner = chosen(
            _moved(network, self.device),
            fields,
            memory=self.memory,
            classes=self.classes,
            seed=self.seed,
        )
        if isinstance(learner, DeepCCG):
            learner.native = kernels.why_not() is None
        return learner

    @property
    def encoder_is_own(self) -> bool:
        """Whether the encoder is a module of the user's."""
        return isinstance(self.encoder, nn.Module)

    def with_frozen(self, names: Container[str] | None) -> "Plan":
        """With a copy of the user's module in which just these parameters do not learn.

        ``None``, from a file that does not tell, leaves it to the module.
        """
        module = copy.deepcopy(self.encoder)
        if names is not None and isinstance(module, nn.Module):
            for name, parameter in module.named_parameters():
                parameter.requires_grad = name not in names  # also of one not yet initialised
        return dataclasses.replace(self, encoder=module)

    def require_unchanged(self, estimator: Any) -> None:
        """Refuse parameters that were set after learning began, which would change nothing."""
        for name in ("method", "method_params", "encoder", "encoder_params", "memory", "device"):
            then, now = getattr(self, name), getattr(estimator, name)
            if name == "method_params":
                completed = completed_params(self.method, now)
                now = then if completed == then else dict(now or {})  # older files have no more
            elif isinstance(then, Mapping):
                now = dict(now or {})
            if isinstance(now, nn.Module) and isinstance(then, nn.Module):
                continue  # it was copied
            if now != then:
                raise InputError(
                    f"{name} is {now!r} since learning began with {then!r}: set it back, "
                    f"or begin anew with fit"
                )

    def renumbered(self, new_code: Mapping[int, int]) -> "Plan":
        """With new codes, without classes that get none."""
        kept = sorted(new_code[code] for code in self.classes if code in new_code)
        return dataclasses.replace(self, classes=tuple(kept))


def _moved(network: nn.Module, device: str) -> nn.Module:
    try:
        return network.to(device)
    except (AssertionError, RuntimeError, TypeError) as error:  # PyTorch has one for each reason
        reason = str(error).splitlines()[0]
        raise InputError(f"device is {device!r}, which PyTorch cannot use: {reason}") from None


def learner_class(method: Any) -> type[NetworkLearner[Any]]:
    """The class behind a method's name."""
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"unknown method {method!r}: choose one of {', '.join(METHODS)}")
    found = METHODS[method]
    if not issubclass(found, NetworkLearner):
        raise InputError(f"{method} is not a learner on a network")
    return found


def completed_params(method: Any, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """A method's fields as the classifiers set them: the given ones, over ``DEFAULTS``.

    >>> completed_params("deepccg", {"replay": 20}), completed_params("er", None)
    ({'renewal': 'errors', 'replay': 20}, {})
    """
    return {**(DEFAULTS.get(method, {}) if isinstance(method, str) else {}), **(given or {})}


Method = TypeVar("Method", bound=Callable[..., Any])


def only_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """scikit-learn's ``available_if``, with types."""
    return cast(Callable[[Method], Method], available_if(check))


def is_generative(estimator: Any) -> bool:
    """Whether the engine models each class by a Gaussian."""
    if not issubclass(learner_class(estimator.method), DeepCCG):
        raise AttributeError(f"method {estimator.method!r} has no class densities; deepccg has")
    return True


def can_forget(estimator: Any) -> bool:
    """Whether the engine's memory has no counter that a removed example would upset."""
    if not issubclass(learner_class(estimator.method), DeepCCG):
        raise AttributeError(f"method {estimator.method!r} cannot forget; deepccg can")
    return True
