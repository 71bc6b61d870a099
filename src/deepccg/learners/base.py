"""The base of every method on a network: one online step, predictions under masks, saved state."""

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial, wraps
from itertools import chain
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn

from deepccg.core import (
    Batch,
    Config,
    Diverged,
    InputError,
    InputForm,
    Learner,
    MemoryUsage,
    State,
    StateMismatch,
    StepInfo,
    Task,
    make_generator,
    require_finite,
)
from deepccg.deprecation import warn_renamed
from deepccg.learners.augment import crop_and_mirror
from deepccg.learners.class_table import ClassTable
from deepccg.learners.memory_readout import MemoryReadout, Readout
from deepccg.learners.optimiser import Optimiser
from deepccg.learners.per_parameter import PerParameter
from deepccg.learners.recipe import RecipeConfig
from deepccg.learners.state import (
    BROKEN_STATE,
    FORMAT,
    Column,
    Stateful,
    StatefulGenerator,
    StatefulModule,
    check_stored,
    collect_state,
    rolled_back_on_error,
    split_state,
    upgrade,
)
from deepccg.learners.stateful_optimiser import StatefulOptimiser
from deepccg.learners.views import AverageOverViews
from deepccg.learners.weight_average import WeightAverage
from deepccg.memory import EMBEDDING, MemoryStore
from deepccg.networks import map_in_chunks, require_embeddable, unfitted_features

ConfigT = TypeVar("ConfigT", bound=Config)
LearnerT = TypeVar("LearnerT", bound="NetworkLearner[Any]")
P = ParamSpec("P")
ResultT = TypeVar("ResultT")
PREDICTED_AT_ONCE = 12_000  # inputs, a multiple of what is embedded at once: embeddings are large


def predicting(
    method: Callable[Concatenate[LearnerT, P], ResultT],
) -> Callable[Concatenate[LearnerT, P], ResultT]:
    """Run a learner's method without gradient and in ``NetworkLearner.prediction_mode``."""

    @wraps(method)
    def asked(self: LearnerT, /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        with torch.no_grad(), self.prediction_mode():
            return method(self, *args, **kwargs)

    return asked


class NetworkLearner(Learner, Generic[ConfigT]):
    """A learner that embeds with a network. Subclasses add ``learn`` and ``scores``.

    A subclass with further state makes it in ``build_state`` and names it in ``state_parts``;
    saving, loading and refusing follow.
    """

    Config: ClassVar[type[Config]]
    caches_embeddings: ClassVar[bool] = True  # of stored examples, under a frozen network
    _in_transaction = False
    _predicting = False
    _repeats = False
    _renamed: ClassVar[dict[str, str]] = {
        "holdings": "memory_usage",
        "parts": "state_parts",
        "receive": "begin_step",
        "remember": "update_memory",
        "set_up": "build_state",
    }

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
            given = type(own_config).__name__
            raise InputError(f"{type(self).__name__} needs a {self.Config.__name__}, not a {given}")
        dim = getattr(network, "dim", None)
        if not isinstance(dim, int):
            raise InputError("a network needs an integer attribute `dim`, its embedding's size")
        self.dim = dim
        self.config = cast(ConfigT, own_config)
        self.network = network
        self._network_state = StatefulModule("network", network)
        embed = partial(_embedded, network) if self._caches_embeddings() else None
        self.memory = MemoryStore(memory, embed)
        self.generator = make_generator(seed, "learner")
        self.class_table = ClassTable(classes)
        self.inputs = InputForm()
        floats = (b for b in network.buffers() if b.is_floating_point())
        parameter = next(chain(network.parameters(), floats), torch.empty(0))
        self.device, self.dtype = parameter.device, parameter.dtype
        self.steps = 0
        self._parameters: tuple[list[int], list[nn.Parameter]] | None = None
        self.build_state(seed)

    def _caches_embeddings(self) -> bool:
        """Whether stored examples are kept with their embeddings, which never change."""
        tensors = chain(self.network.parameters(), self.network.buffers())
        frozen = getattr(self.network, "frozen", False) and any(t.numel() for t in tensors)
        return self.caches_embeddings and frozen

    def build_state(self, seed: int) -> None:
        """Make what the method holds beyond network and memory; called last by the constructor."""

    @property
    def classes(self) -> tuple[int, ...]:
        """The label of each output column, in order of first appearance."""
        return tuple(self.class_table.classes)

    # One online step

    def begin_step(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Check a batch, note its classes and task; a batch that is refused changes nothing.

        Returns:
            Inputs ``[B, ...]`` on the learner's device, class columns ``[B]``, task indices
            ``[B]``.
        """
        x = self.validate_inputs(batch.x, "the batch")
        first = self.inputs.shape is None
        if first:
            self.recipe.require_suitable(x.shape[1:])
            require_embeddable(self.network, x[:1], (1, self.dim))
        if self.class_table.begins_task(batch):
            self.finish_task()
        self._drop_derived()
        self.inputs.note(x)
        y, task_idx = self.class_table.observe(batch)
        if first:
            self.fit_network(x)
        return x, y.to(self.device), task_idx.to(self.device)

    def fit_network(self, x: Tensor) -> None:
        """Fit features that are not learned to the first batch, ``x [B, ...]``."""
        for features in unfitted_features(self.network):
            features.fit(x, self.generator)

    def finish_task(self) -> None:
        """Called when a batch of another task comes, before anything of it is noted."""

    def replay_inputs(self, x: Tensor, slots: Tensor) -> Tensor:
        """Inputs as a step trains on them: the batch ``x [B, ...]``, then stored examples.

        Every method replays through here or through ``embed_with_replay``.
        """
        return self.augmented(self.with_stored(x, slots))

    def with_stored(self, x: Tensor, slots: Tensor) -> Tensor:
        """The batch ``x [B, ...]``, then stored examples, as they are."""
        return torch.cat([x, self.memory.x.index_select(0, slots)]) if len(slots) else x

    def augmented(self, x: Tensor) -> Tensor:
        """Inputs ``[B, ...]`` cropped and mirrored at random, if the recipe says so, in a step."""
        return crop_and_mirror(x, self.generator) if self.augments else x

    @property
    def augments(self) -> bool:
        """Whether inputs are changed before they are embedded now."""
        return self.recipe.augment and not self._predicting

    def embed_with_replay(self, x: Tensor, slots: Tensor) -> Tensor:
        """Embeddings of ``replay_inputs`` with gradient, ``[B + R, D]``."""
        if not self.network.training:
            self.network.train()
        if self.memory.embed is None or self.augments or not len(slots):
            z: Tensor = self.network(self.replay_inputs(x, slots))
            return z
        return torch.cat([self.network(x), self.embed_stored(slots)])

    def replay_labels(self, y: Tensor, slots: Tensor) -> Tensor:
        """Class columns of what ``replay_inputs`` returns, ``[B + R]``."""
        return torch.cat([y, self.memory.y.index_select(0, slots)])

    def masks(self: "NetworkLearner[Any]", task_idx: Tensor, slots: Tensor) -> Tensor:
        """Classes each example of batch and replay is compared with, ``[B + R, C]``."""
        train, again = self.config.train_mask, self.config.replay_mask
        replayed = self.memory.task.index_select(0, slots)
        return self.class_table.replay_mask(train, task_idx, again, replayed).to(self.device)

    def optimise(self, loss: Tensor) -> float:
        """One optimiser step on everything that is trained; returns the loss."""
        self.apply_gradients(self.gradients(loss))
        return loss.item()

    def descend(self, loss: Tensor, lr: float) -> float:
        """Deprecated: ``optimise``, whose step size is the configuration's."""
        warn_renamed("descend(loss, lr)", "optimise(loss)")
        step = Optimiser(lr, self.dtype).step
        step(self.trainable_parameters(), self.gradients(loss), self.steps + 1)
        return loss.item()

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """The gradient for each of ``trainable_parameters()``; zeros where there is none."""
        value = loss.item()
        if not math.isfinite(value):
            raise Diverged(f"the loss is {value} at step {self.steps + 1}: try a smaller lr")
        wanted = self.trainable_parameters()
        if not wanted:  # a fixed embedding
            return []
        return [*torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)]

    def apply_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Move the weights; nothing is stored or saved of a step that diverged."""
        self.optimiser.step(self.trainable_parameters(), gradients, self.steps + 1)
        if self.average is not None:
            self.average.update()

    def repeats(self) -> Iterable[int]:
        """The optimiser steps that a batch is worth, each with a replay of its own.

        Memory takes the batch after the last one: no step replays what it learns as new.
        """
        self._repeats = True
        return range(self.recipe.repeats)

    def end_step(
        self, loss: float, replayed: int = 0, extra: Mapping[str, float] | None = None
    ) -> StepInfo:
        """Count the step and return what it reports: of repeats, what the last one did."""
        if self.recipe.repeats > 1 and not self._repeats:
            raise InputError(
                f"{type(self).__name__} takes one optimiser step per batch: leave repeats at 1, or "
                f"let its learn loop over self.repeats()"
            )
        self.steps += 1
        return StepInfo(loss, replayed, extra or {})

    @cached_property
    def optimiser(self: "NetworkLearner[Any]") -> Optimiser | StatefulOptimiser:
        """The one that moves the weights."""
        lr = self.config.lr
        if self.recipe.plain_sgd:
            return Optimiser(lr, self.dtype)
        return StatefulOptimiser(lr, self.recipe, self.trainable_parameters)

    @cached_property
    def average(self) -> WeightAverage | None:
        """The averaged weights that predict, if the recipe asks for them."""
        decay = self.recipe.average
        return WeightAverage(decay, self.trainable_parameters) if decay else None

    def trainable_modules(self) -> list[nn.Module]:
        """What the optimiser trains."""
        return [self.network]

    def trainable_parameters(self) -> list[nn.Parameter]:
        """Every parameter the optimiser moves, in a fixed order."""
        modules = self.trainable_modules()
        # Walking a network for its parameters is a hundredth of a step. They stay the same
        # objects but for those that grow, which are a module's own.
        own = [id(p) for module in modules for p in module.parameters(recurse=False)]
        if self._parameters is None or self._parameters[0] != own:
            self._parameters = own, [p for module in modules for p in module.parameters()]
        return [parameter for parameter in self._parameters[1] if parameter.requires_grad]

    def validate_inputs(self, x: Tensor, what: str) -> Tensor:
        """``as_input``, after rejecting inputs of another form and values that are not finite."""
        self.inputs.require(x, what)
        x = self.as_input(x)
        require_finite(x, what)
        return x

    def as_input(self, x: Tensor) -> Tensor:
        """``x`` on the learner's device; floats in the network's precision."""
        return x.to(self.device, self.dtype) if x.is_floating_point() else x.to(self.device)

    def embed(self, x: Tensor) -> Tensor:
        """Embeddings without gradient, ``[B, D]``; in ``prediction_mode`` those that predict."""
        network = self.predicting_embedding() if self._predicting else self.network
        return _embedded(network, x)

    def embed_stored(self, slots: Tensor) -> Tensor:
        """Embeddings of stored examples without gradient, ``[n, D]``, as ``embed`` gives them."""
        if len(slots) == 0:
            return torch.zeros(0, self.dim, dtype=self.dtype, device=self.device)
        if self.memory.embed is None or (self._predicting and self.recipe.views > 1):
            return self.embed(self.memory.x.index_select(0, slots))
        return self.memory[EMBEDDING].index_select(0, slots)

    # Predictions

    @cached_property
    def recipe(self) -> RecipeConfig:
        """The options that all methods with replay have; without any effect for the others."""
        return self.config if isinstance(self.config, RecipeConfig) else RecipeConfig()

    @property
    def readout(self) -> Readout:
        """What classifies embeddings: the method itself, unless the recipe says otherwise."""
        return self if self.recipe.readout == "own" else self._memory_readout

    @cached_property
    def _memory_readout(self) -> MemoryReadout:
        return MemoryReadout(self)

    def _drop_derived(self) -> None:
        """Network or memory are about to change."""
        if self.recipe.readout != "own":
            self._memory_readout.forget()

    @contextmanager
    def prediction_mode(self) -> Iterator[None]:
        """Inside, stored examples and queries are embedded as predictions need it."""
        if self._predicting:
            yield
            return
        self._predicting = True
        try:
            with nullcontext() if self.average is None else self.average.in_use():
                yield
        finally:
            self._predicting = False

    def predicting_network(self) -> nn.Module:
        """The network that predicts."""
        return self.network

    def predicting_embedding(self) -> nn.Module:
        """The network that predicts, averaged over views, ``[B, ...] -> [B, D]``."""
        network, views = self.predicting_network(), self.recipe.views
        return network if views == 1 else AverageOverViews(network, views).train(network.training)

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """Something per class ``[B, C]`` from which ``masked`` makes logits."""

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Logits ``[B, C]`` over the allowed classes ``mask [C]``; -inf elsewhere."""
        return scores.masked_fill(~mask, -math.inf)

    def predict_logits(self, x: Tensor, task: Task | None = None) -> Tensor:
        """See ``Learner``."""
        return self.predict_logits_each(x, [task])[0]

    @predicting
    def predict_logits_each(self, x: Tensor, tasks: Sequence[Task | None]) -> list[Tensor]:
        """``predict_logits`` under several tasks; ``x`` is embedded once."""
        x = self.validate_inputs(x, "x")
        parts = [self._logits_each(part, tasks) for part in torch.split(x, PREDICTED_AT_ONCE)]
        return (
            parts[0] if len(parts) == 1 else [torch.cat(each) for each in zip(*parts, strict=True)]
        )

    def _logits_each(self, x: Tensor, tasks: Sequence[Task | None]) -> list[Tensor]:
        scores = self.readout.scores(x) if bool((self.class_table.seen > 0).any()) else None
        return [self.logits_under(task, scores, len(x)) for task in tasks]

    def logits_under(self, task: Task | None, scores: Tensor | None, length: int) -> Tensor:
        """Logits ``[length, C]`` of a task; without ``scores``, uniform over its classes."""
        logits = torch.full((length, len(self.columns(task))), -math.inf, device=self.device)
        if scores is not None:
            known = self.readout.masked(scores, self._seen_under(task))
            logits = logits.to(known.dtype)
            logits[:, : len(self.class_table)] = known
        return _uniform_where_unknown(logits, self._allowed_columns(task))

    @predicting
    def representation(self, x: Tensor, task: Task | None = None) -> Tensor:
        """See ``Learner``: the network's embeddings, whatever the task."""
        del task
        return self.embed(self.validate_inputs(x, "x"))

    @predicting
    def classifier(self, task: Task | None = None) -> Callable[[Tensor], Tensor]:
        """See ``Learner``."""
        known, columns = len(self.class_table), self.columns(task)
        allowed = self._allowed_columns(task)
        frozen = self.readout.frozen_classifier(self._seen_under(task), task)

        def logits(z: Tensor) -> Tensor:
            scores = z.new_full((len(z), len(columns)), -math.inf)
            scores[:, :known] = frozen(z)
            return _uniform_where_unknown(scores, allowed)

        return logits

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """The present map from embeddings to ``masked(scores, mask)``, ``[B, D] -> [B, C]``.

        Without an implementation of it a method's representation shift cannot be recorded.
        """
        del mask
        return super().classifier(task)

    def inference_module(self) -> nn.Module:
        """Return a copy of the classifier as one module for export, ``[B, ...] -> [B, C]`` logits.

        Only for methods that predict without a task; see ``deepccg.learners.readout``.
        """
        raise InputError(f"{type(self).__name__} predicts under a task only: export another")

    def _seen_under(self, task: Task | None) -> Tensor:
        """Which outputs are of classes that were seen and that the task allows, ``[C]``."""
        mask = torch.zeros(len(self.class_table), dtype=torch.bool, device=self.device)
        mask[self.class_table.columns_of(task)] = True
        return mask

    def _allowed_columns(self, task: Task | None) -> list[int]:
        """Those of ``columns(task)`` to predict: classes seen, or else all of the task."""
        if seen := self.class_table.columns_of(task):
            return seen
        if task is None:
            raise InputError("nothing was learned yet: there is no class to predict")
        columns = self.columns(task)
        return [columns.index(label) for label in task.classes]

    # Saved state

    def state_parts(self) -> dict[str, Stateful]:
        """Everything that is saved, by name."""
        return {
            "outputs": self.class_table,
            "inputs": self.inputs,
            "network": self._network_state,
            "memory": self.memory,
            "generator": StatefulGenerator(self.generator),
            **self._recipe_parts(),
        }

    def _recipe_parts(self) -> dict[str, PerParameter]:
        """What the recipe keeps beside the weights, by name."""
        parts: dict[str, PerParameter] = {}
        if not self.recipe.plain_sgd and isinstance(self.optimiser, StatefulOptimiser):
            parts["optimiser"] = self.optimiser
        if self.average is not None:
            parts["average"] = self.average
        return parts

    def step_parts(self) -> dict[str, Stateful]:
        """Those that the next step may change."""
        return self.state_parts()

    def extra_columns(self, classes: int) -> dict[str, Column]:
        """Further columns of the memory, by name, in a state of ``classes`` outputs.

        States whose memory has other columns are refused.
        """
        del classes
        return {}

    def memory_usage(self) -> MemoryUsage:
        """The memory: examples with their labels, what is stored with each; the recipe's."""
        kinds = {"examples": self.memory.bytes, **self.memory.extra_bytes}
        if EMBEDDING in kinds:
            kinds["cached embeddings"] = kinds.pop(EMBEDDING)
        kinds |= {part.name: part.bytes for part in self._recipe_parts().values()}
        return MemoryUsage(self.memory.size, kinds)

    def state_dict(self) -> State:
        """See ``Learner``."""
        tensors, parts = collect_state(self.state_parts())
        header = {"format": FORMAT, "method": type(self).__name__, "config": self.config_dict()}
        return State(tensors, {**header, "steps": self.steps, "parts": parts})

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        state = upgrade(state)
        try:
            wanted = self._validate_state(state)
            with self.transaction(often=False):  # for what no check foresaw
                for name, part in self.state_parts().items():
                    part.load(wanted[name])
                for kept in self._recipe_parts().values():
                    kept.require_fit()
        except StateMismatch:
            raise
        except BROKEN_STATE as error:
            raise StateMismatch(f"the state is incomplete or broken: {error!r}") from error
        self.steps = state.meta["steps"]
        self._drop_derived()

    @contextmanager
    def transaction(self, *, often: bool = True) -> Iterator[None]:
        """An error within leaves the learner as it was before the outermost of these blocks.

        With ``often``, room for the copies is kept for the next time.
        """
        if self._in_transaction:
            yield
            return
        steps, self._in_transaction = self.steps, True
        try:
            parts = self.step_parts() if often else self.state_parts()
            with rolled_back_on_error(parts.values(), often=often):
                yield
        except BaseException:
            self.steps = steps
            raise
        finally:
            self._in_transaction = False

    def config_dict(self) -> dict[str, Any]:
        """The method's fields as JSON values."""
        return self.config.model_dump(mode="json")

    def _validate_state(self, state: State) -> dict[str, State]:
        """Return the state of each part, after all of them are found in order."""
        meta = state.meta
        method, own = meta.get("method"), type(self).__name__
        if method != own:
            raise StateMismatch(f"the state belongs to {method!r}, not to {own}")
        if type(meta["steps"]) is not int or meta["steps"] < 0:
            raise StateMismatch(f"the state was saved after {meta['steps']!r} steps")
        if bad := state.not_finite():
            raise StateMismatch(f"the state's {bad[0]} is not finite: the learner had diverged")
        found = split_state(self.state_parts(), state, self.device)
        extras = self.extra_columns(len(found["outputs"].meta["classes"]))
        if "memory" in found and EMBEDDING in found["memory"].tensors:
            extras = {**extras, EMBEDDING: ((self.dim,), self.dtype)}
        check_stored(found, self.dtype, extras)
        saved, defaults = meta.get("config"), self.Config().model_dump(mode="json")
        # A field that an older state lacks had its default.
        if not isinstance(saved, dict) or {**defaults, **saved} != self.config_dict():
            warnings.warn("the state was saved with other method fields", stacklevel=3)
        return found


def _uniform_where_unknown(logits: Tensor, allowed: list[int]) -> Tensor:
    """Rows ``[C]`` that say nothing of any class become 0 for the ``allowed`` ones."""
    unknown = torch.isinf(logits).all(dim=1)
    logits[unknown.nonzero(), torch.tensor(allowed, device=logits.device)] = 0.0
    return logits


def _embedded(network: nn.Module, x: Tensor) -> Tensor:
    """Without gradient, ``[B, ...] -> [B, D]``."""
    if network.training:
        network.eval()
    with torch.no_grad():
        return map_in_chunks(network, x)
