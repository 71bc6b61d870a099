"""From an estimator's parameters to its learner, and which methods that learner supports."""

import copy
import dataclasses
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar, TypeVar, cast

import torch
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from torch import Tensor, nn

from deepccg.core import InputError, State, did_you_mean, validated
from deepccg.estimator.encoders import CHOSEN, WAVED, build_encoder
from deepccg.estimator.inputs import check_count
from deepccg.gaussian import kernels
from deepccg.methods import METHODS, NetworkLearner
from deepccg.methods.deepccg import DeepCCG
from deepccg.networks import PretrainedEncoder, Standardized

# PyTorch initialises weights from its global generator, which every thread shares.
_GLOBAL_GENERATOR = Lock()


@dataclass(frozen=True)
class LearnerSpec:
    """Everything needed to build an estimator's learner: its parameters, and its first data."""

    # Fields in which the estimators differ from a method's own defaults. A stream may change what
    # a class is, so DeepCCG's stored examples are renewed.
    DEFAULTS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"deepccg": {"renewal": "errors"}}
    # Further ones for our own network on vectors (benchmarks/classifier_defaults.py).
    ON_VECTORS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "deepccg": {"replay": 60, "replay_sampling": "balanced", "repeats": 2}
    }

    PARAMETERS: ClassVar[tuple[str, ...]] = (
        "method", "method_params", "encoder", "encoder_params", "memory", "device",
        "standardize",
    )  # fmt: skip
    method: str
    method_params: Mapping[str, Any]
    encoder: str | nn.Module
    encoder_params: Mapping[str, Any]
    memory: int
    device: str

    shape: tuple[int, ...]  # of one input, ``[F]`` or ``[C, H, W]``
    double: bool  # whether the inputs are float64
    classes: tuple[int, ...]  # codes known in advance
    seed: int  # of every draw
    standardize: bool = False  # older files do not have it

    @classmethod
    def with_defaults(
        cls, method: Any, params: Mapping[str, Any] | None, on_vectors: bool = False
    ) -> dict[str, Any]:
        """Return the fields given for a method, over ``DEFAULTS`` and ``ON_VECTORS``.

        >>> LearnerSpec.with_defaults("deepccg", {"replay": 20})
        {'renewal': 'errors', 'replay': 20}
        >>> LearnerSpec.with_defaults("deepccg", {"replay": 20}, on_vectors=True)
        {'renewal': 'errors', 'replay': 20, 'replay_sampling': 'balanced', 'repeats': 2}
        >>> LearnerSpec.with_defaults("er", None)
        {}
        """
        if not isinstance(method, str):
            return dict(params or {})
        defaults = {
            **cls.DEFAULTS.get(method, {}),
            **(cls.ON_VECTORS.get(method, {}) if on_vectors else {}),
        }
        return {**defaults, **(params or {})}

    @classmethod
    def of(cls, params: Mapping[str, Any], x: Tensor, declared: int) -> "LearnerSpec":
        """Return the spec for an estimator's parameters and inputs like ``x``.

        The first ``declared`` codes are known in advance.
        """
        check_count("memory", params["memory"], least=0)
        on_vectors = learns_from_vectors(params["encoder"], tuple(x.shape[1:]))
        return cls(
            method=params["method"],
            method_params=cls.with_defaults(params["method"], params["method_params"], on_vectors),
            encoder=copy.deepcopy(params["encoder"]),
            encoder_params=dict(params["encoder_params"] or {}),
            memory=params["memory"],
            device=params["device"],
            shape=tuple(x.shape[1:]),
            double=x.dtype == torch.float64,
            classes=tuple(range(declared)),
            standardize=bool(params["standardize"]),
            seed=int(check_random_state(params["random_state"]).randint(2**31 - 1)),
        )

    def build(self, state: State | None = None) -> NetworkLearner[Any]:
        """Return a learner that has seen nothing, or that continues from ``state``."""
        chosen = learner_class(self.method)
        config = validated(chosen.Config, self.method_params, "method_params")
        dtype = torch.float64 if self.double else torch.float32
        with _GLOBAL_GENERATOR:
            network = build_encoder(self.encoder, self.encoder_params, self.shape, dtype, self.seed)
        if self.standardize and self.learns_from_vectors:
            network = Standardized(network, self.shape[0], dtype)
        network = _on_device(network, self.device)
        learner = chosen(network, config, memory=self.memory, classes=self.classes, seed=self.seed)
        if isinstance(learner, DeepCCG):
            learner.native = kernels.unavailable_reason() is None
        if state is not None:
            learner.load_state_dict(state)
        return learner

    @property
    def learns_from_vectors(self) -> bool:
        """Whether the encoder is our own network on vectors, which learns what their scale is."""
        return learns_from_vectors(self.encoder, self.shape)

    def with_frozen(self, names: Container[str] | None) -> "LearnerSpec":
        """Return a spec with a copy of the user's module that trains all parameters but ``names``.

        ``None``, from a file that does not list them, leaves the module as it is.
        """
        if isinstance(self.encoder, PretrainedEncoder):
            return self
        module = copy.deepcopy(self.encoder)
        if names is not None and isinstance(module, nn.Module):
            for name, parameter in module.named_parameters():
                parameter.requires_grad = name not in names  # lazy parameters included
        return dataclasses.replace(self, encoder=module)

    def renumbered(self, new_code: Mapping[int, int]) -> "LearnerSpec":
        """Return a spec with new codes, without the classes that have none."""
        kept = sorted(new_code[code] for code in self.classes if code in new_code)
        return dataclasses.replace(self, classes=tuple(kept))

    def changed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of ``params``, of an estimator, that are not those of this spec."""
        found = {}
        for name in self.PARAMETERS:
            before, now = getattr(self, name), params.get(name)
            if now == "auto" and before in CHOSEN:
                continue
            if name == "method_params" and isinstance(now, Mapping | None):
                now = dict(now or {})
                full = self.with_defaults(self.method, now, self.learns_from_vectors)
                if now.items() <= before.items() <= full.items():  # older files lack some defaults
                    continue
            elif isinstance(before, Mapping) and isinstance(now, Mapping | None):
                now = dict(now or {})
                before = {field: value for field, value in before.items() if field != WAVED}
            if isinstance(now, nn.Module) and isinstance(before, nn.Module):
                continue  # it was copied
            if now != before:
                found[name] = now
        return found

    def require_unchanged(self, params: Mapping[str, Any]) -> None:
        """Reject parameters that were set after learning began, when they have no effect."""
        for name, now in self.changed(params).items():
            raise InputError(
                f"{name} is {now!r} since learning began with {getattr(self, name)!r}: set it "
                f"back, or start again with fit"
            )


def learns_from_vectors(encoder: str | nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether this encoder, for inputs of this shape, is our own network on vectors."""
    return len(shape) == 1 and isinstance(encoder, str) and encoder in ("auto", "mlp")


def _on_device(network: nn.Module, device: str) -> nn.Module:
    if str(device).startswith("meta"):
        raise InputError("device is 'meta', which holds no numbers: choose cpu or an accelerator")
    try:
        return network.to(device)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:  # one for each reason
        reason = str(error).partition("\n")[0]
        raise InputError(f"device is {device!r}, which PyTorch cannot use: {reason}") from None


def observe(learner: NetworkLearner[Any], x: Tensor) -> None:
    """Let inputs ``x [N, ...]``, which are learned next, be part of the scale, if there is one."""
    if isinstance(learner.network, Standardized):
        learner.network.observe(learner.as_input(x))


def learner_class(method: Any) -> type[NetworkLearner[Any]]:
    """Return the class behind a method's name."""
    if not isinstance(method, str) or method not in METHODS:
        hint = did_you_mean(str(method), METHODS)
        raise InputError(f"unknown method {method!r}{hint}: choose one of {', '.join(METHODS)}")
    found = METHODS[method]
    if not issubclass(found, NetworkLearner):
        raise InputError(f"{method} is not a learner on a network")
    return found


Method = TypeVar("Method", bound=Callable[..., Any])


def only_deepccg(others: str) -> Callable[[Method], Method]:
    """Make an estimator's method available with DeepCCG only; ``others`` says what others lack.

    DeepCCG models each class by a Gaussian that the stored examples alone determine.
    """

    def check(estimator: Any) -> bool:
        if not issubclass(learner_class(estimator.method), DeepCCG):
            raise AttributeError(f"method {estimator.method!r} {others}: choose deepccg")
        return True

    return cast(Callable[[Method], Method], available_if(check))
