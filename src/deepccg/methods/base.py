"""What every method on a network shares: outputs, masks, prediction, one SGD step, saving."""

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from deepccg.core import (
    Batch,
    Config,
    Diverged,
    Holdings,
    InputError,
    Learner,
    State,
    StateMismatch,
    Task,
    make_generator,
)
from deepccg.memory import MemoryStore
from deepccg.methods.formats import FORMAT, upgraded
from deepccg.methods.health import all_finite, require_finite
from deepccg.methods.inputs import InputForm, require_embeddable
from deepccg.methods.outputs import Outputs
from deepccg.methods.parts import Column, GeneratorPart, ModulePart, Part, check_stored

ConfigT = TypeVar("ConfigT", bound=Config)

CHUNK = 50  # images embedded at once without gradient: the activations stay in the cache

# What a state that somebody has tampered with can make of ``check`` and ``load``.
_BROKEN = (
    AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class NetworkLearner(Learner, Generic[ConfigT]):
    """A learner that embeds with a network. Subclasses add ``learn`` and ``scores``.

    A subclass with further state makes it in ``set_up`` and names it in ``parts``; saving, loading
    and refusing follow.
    """

    Config: ClassVar[type[Config]]
    config: ConfigT

    def __init__(
        self,
        network: nn.Module,
        config: ConfigT | None = None,
        *,
        memory: int = 0,
        classes: Sequence[int] = (),
        seed: int = 0,
    ) -> None:
        own_config = self.Config() if config is None else config
        if not isinstance(own_config, self.Config):
            raise InputError(
                f"{type(self).__name__} needs a {self.Config.__name__}, "
                f"not a {type(own_config).__name__}"
            )
        dim = getattr(network, "dim", None)
        if not isinstance(dim, int):
            raise InputError("a network needs an integer attribute `dim`, its embedding's size")
        self.dim = dim
        self.config = cast(ConfigT, own_config)
        self.network = network
        self.memory = MemoryStore(memory)
        self.generator = make_generator(seed, "learner")
        self.outputs = Outputs(classes)
        self.inputs = InputForm()
        parameter = next(network.parameters(), torch.empty(0))
        self.device, self.dtype = parameter.device, parameter.dtype
        self.steps = 0
        self._parameters: tuple[list[int], list[nn.Parameter]] | None = None
        self.set_up(seed)

    def set_up(self, seed: int) -> None:
        """Make what the method holds besides; the last thing a constructor does."""

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """Something per class ``[B, C]`` from which ``masked`` makes logits."""

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Logits ``[B, C]`` over the allowed classes ``mask [C]``; -inf elsewhere."""
        return scores.masked_fill(~mask, -math.inf)

    def parts(self) -> dict[str, Part]:
        """Everything that is saved, by name."""
        return {
            "outputs": self.outputs,
            "inputs": self.inputs,
            "network": ModulePart("network", self.network),
            "memory": self.memory,
            "generator": GeneratorPart(self.generator),
        }

    def extra_columns(self, classes: int) -> dict[str, Column]:
        """What the memory holds of each example besides itself, in a state of ``classes`` outputs.

        A subclass that tells has states with other columns refused.
        """
        del classes
        return {}

    def modules(self) -> list[nn.Module]:
        """What the optimiser trains."""
        return [self.network]

    @property
    def classes(self) -> tuple[int, ...]:
        """The label of each output column, in order of first appearance."""
        return tuple(self.outputs.classes)

    def receive(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Check a batch, note its classes and task; a batch that is refused changes nothing.

        Returns:
            Inputs ``[B, ...]`` on the learner's device, class columns ``[B]``, task rows ``[B]``.
        """
        x = self.checked(batch.x, "the batch")
        if self.inputs.shape is None:
            require_embeddable(self.network, x[:1], (1, self.dim))
        if self.outputs.begins_task(batch):
            self.finish_task()
        self.inputs.note(x)
        y, rows = self.outputs.observe(batch)
        return x, y.to(self.device), rows.to(self.device)

    def checked(self, x: Tensor, what: str) -> Tensor:
        """``as_input``, after refusing inputs of another form and values that are not finite."""
        self.inputs.require(x, what)
        x = self.as_input(x)
        require_finite(x, what)
        return x

    def finish_task(self) -> None:
        """Called when a batch of another task comes, before anything of it is noted."""

    def as_input(self, x: Tensor) -> Tensor:
        """Onto the learner's device; floats in the network's precision."""
        return x.to(self.device, self.dtype) if x.is_floating_point() else x.to(self.device)

    def embed(self, x: Tensor) -> Tensor:
        """Embeddings without gradient, ``[B, D]``."""
        if self.network.training:
            self.network.eval()
        with torch.no_grad():
            chunks = [self.network(chunk) for chunk in torch.split(x, CHUNK)]
        return torch.cat(chunks) if chunks else x.new_zeros(0, dtype=self.dtype)

    def trained(self) -> list[nn.Parameter]:
        """Every parameter the optimiser moves, in a fixed order."""
        modules = self.modules()
        # Walking a network for its parameters is a hundredth of a step. They stay the same
        # objects but for those that grow, which are a module's own.
        own = [id(p) for module in modules for p in module.parameters(recurse=False)]
        if self._parameters is None or self._parameters[0] != own:
            self._parameters = own, [p for module in modules for p in module.parameters()]
        return [parameter for parameter in self._parameters[1] if parameter.requires_grad]

    def descend(self, loss: Tensor, lr: float) -> float:
        """One plain SGD step on everything that is trained; returns the loss."""
        gradients = self.gradients(loss)
        self.step(gradients, lr)
        return float(loss.detach())

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """The loss's gradient for each of ``trained()``; zeros where it does not depend on it."""
        value = float(loss.detach())
        if not math.isfinite(value):
            raise Diverged(f"the loss is {value} at step {self.steps + 1}: try a smaller lr")
        parameters = self.trained()
        if not parameters:  # a fixed embedding
            return []
        return list(
            torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        )

    def step(self, gradients: Sequence[Tensor], lr: float) -> None:
        """``theta <- theta - lr gradient``; nothing is stored or saved of a step too far."""
        parameters = self.trained()
        if lr > torch.finfo(self.dtype).max:
            raise Diverged(f"lr {lr:g} is beyond all {self.dtype} numbers: try a smaller lr")
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=lr)
        if not all_finite(parameters):
            raise Diverged(
                f"the weights are not finite after step {self.steps + 1}: try a smaller lr"
            )

    def holdings(self) -> Holdings:
        """The memory: examples with their labels, and what is stored with each."""
        kinds = {"examples": self.memory.bytes, **self.memory.extra_bytes}
        return Holdings(self.memory.size, kinds)

    def predict_logits(self, x: Tensor, task: Task | None = None) -> Tensor:
        """See ``Learner``."""
        return self.predict_logits_each(x, [task])[0]

    @torch.no_grad()
    def predict_logits_each(self, x: Tensor, tasks: Sequence[Task | None]) -> list[Tensor]:
        """``predict_logits`` under several tasks; ``x`` is embedded once."""
        x = self.checked(x, "x")
        scores = self.scores(x) if bool((self.outputs.seen > 0).any()) else None
        return [self._logits_under(task, scores, len(x)) for task in tasks]

    def representation(self, x: Tensor, task: Task | None = None) -> Tensor:
        """See ``Learner``: the network's embeddings, whatever the task."""
        del task
        return self.embed(self.checked(x, "x"))

    @torch.no_grad()
    def classifier(self, task: Task | None = None) -> Callable[[Tensor], Tensor]:
        """See ``Learner``."""
        known, columns = len(self.outputs), self.columns(task)
        possible, allowed = self._seen_under(task), self._allowed_columns(task)
        frozen = self.frozen(possible, task)

        def logits(z: Tensor) -> Tensor:
            scores = z.new_full((len(z), len(columns)), -math.inf)
            scores[:, :known] = frozen(z)
            return _uniform_where_unknown(scores, allowed)

        return logits

    def frozen(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """From embeddings to ``masked(scores, mask)``, ``[B, D] -> [B, C]``, as of now for ever.

        A subclass that does not say how cannot have its representation shift recorded.
        """
        del mask
        return super().classifier(task)

    def _logits_under(self, task: Task | None, scores: Tensor | None, length: int) -> Tensor:
        logits = torch.full((length, len(self.columns(task))), -math.inf, device=self.device)
        if scores is not None:
            logits = logits.to(scores.dtype)
            logits[:, : len(self.outputs)] = self.masked(scores, self._seen_under(task))
        return _uniform_where_unknown(logits, self._allowed_columns(task))

    def _seen_under(self, task: Task | None) -> Tensor:
        """Which outputs are of classes that were seen and that the task allows, ``[C]``."""
        mask = self.outputs.seen > 0
        if task is not None:
            mask = torch.zeros_like(mask)
            mask[self.outputs.columns_of(task)] = True
        return mask.to(self.device)

    def _allowed_columns(self, task: Task | None) -> list[int]:
        if task is None:
            seen = self.outputs.seen.nonzero().flatten().tolist()
            if not seen:
                raise InputError("nothing was learned yet: there is no class to predict")
            return seen
        columns = self.columns(task)
        unseen = [columns.index(label) for label in task.classes]
        return self.outputs.columns_of(task) or unseen

    def state_dict(self) -> State:
        """See ``Learner``."""
        tensors: dict[str, Tensor] = {}
        meta: dict[str, Any] = {}
        for name, part in self.parts().items():
            state = part.state()
            tensors |= {f"{name}.{key}": value for key, value in state.tensors.items()}
            meta[name] = state.meta
        header = {
            "format": FORMAT,
            "method": type(self).__name__,
            "config": self.config_dict(),
            "steps": self.steps,
        }
        return State(tensors, {**header, "parts": meta})

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        state = upgraded(state)
        own = self.parts()
        try:
            wanted = self._matching_parts(state)
        except StateMismatch:
            raise
        except _BROKEN as error:
            raise StateMismatch(f"the state is incomplete: {error!r}") from error
        before = {name: part.state() for name, part in own.items()}
        try:
            for name, part in own.items():
                part.load(wanted[name])
        except _BROKEN as error:  # what no check foresaw: all is as it was
            for name, part in own.items():
                part.load(before[name])
            raise StateMismatch(f"the state cannot be loaded: {error!r}") from error
        self.steps = state.meta["steps"]

    def config_dict(self) -> dict[str, Any]:
        """The method's fields as JSON values."""
        return self.config.model_dump(mode="json")

    def _same_fields(self, saved: object) -> bool:
        """Whether a state has this learner's fields; one it lacks, being older, had its default."""
        defaults = self.Config().model_dump(mode="json")
        return isinstance(saved, dict) and {**defaults, **saved} == self.config_dict()

    def _matching_parts(self, state: State) -> dict[str, State]:
        """The state of each part, after all of them found theirs in order."""
        meta = state.meta
        if meta.get("method") != type(self).__name__:
            raise StateMismatch(
                f"the state belongs to {meta.get('method')!r}, not to {type(self).__name__}"
            )
        if type(meta["steps"]) is not int or meta["steps"] < 0:
            raise StateMismatch(f"the state was saved after {meta['steps']!r} steps")
        if bad := state.not_finite():
            raise StateMismatch(f"the state's {bad[0]} is not finite: the learner had diverged")
        found: dict[str, State] = {}
        for name, part in self.parts().items():
            tensors = {
                key.removeprefix(f"{name}."): value.to(self.device)
                for key, value in state.tensors.items()
                if key.startswith(f"{name}.")
            }
            found[name] = State(tensors, meta["parts"][name])
            part.check(found[name])
        extras = self.extra_columns(len(found["outputs"].meta["classes"]))
        check_stored(found, self.dtype, extras)
        if not self._same_fields(meta.get("config")):
            warnings.warn("the state was saved with other method fields", stacklevel=3)
        return found


def _uniform_where_unknown(logits: Tensor, allowed: list[int]) -> Tensor:
    """Rows ``[C]`` that say nothing of any class become 0 for the ``allowed`` ones."""
    unknown = torch.isinf(logits).all(dim=1)
    logits[unknown.nonzero(), torch.tensor(allowed, device=logits.device)] = 0.0
    return logits
