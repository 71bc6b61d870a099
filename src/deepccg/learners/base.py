"""What every method on a network shares: what it owns, how it embeds, one SGD step."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from deepccg.core import Batch, Diverged, Holdings, InputError, Task, make_generator
from deepccg.learners.classes import Outputs
from deepccg.learners.inputs import (
    InputForm,
    all_finite,
    in_pieces,
    require_embeddable,
    require_finite,
)
from deepccg.learners.state import ConfigT, GeneratorPart, ModulePart, Part, SavedLearner
from deepccg.memory import MemoryStore


class PredictingLearner(SavedLearner[ConfigT]):
    """A learner that scores classes from embeddings, and masks those that are not asked for."""

    outputs: Outputs

    @abstractmethod
    def embed(self, x: Tensor) -> Tensor:
        """Embeddings without gradient, ``[B, D]``."""

    @abstractmethod
    def checked(self, x: Tensor, what: str) -> Tensor:
        """``x`` on the learner's device; inputs that cannot be embedded are refused."""

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """Something per class ``[B, C]`` from which ``masked`` makes logits."""

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Logits ``[B, C]`` over the allowed classes ``mask [C]``; -inf elsewhere."""
        return scores.masked_fill(~mask, -math.inf)

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


def _uniform_where_unknown(logits: Tensor, allowed: list[int]) -> Tensor:
    """Rows ``[C]`` that say nothing of any class become 0 for the ``allowed`` ones."""
    unknown = torch.isinf(logits).all(dim=1)
    logits[unknown.nonzero(), torch.tensor(allowed, device=logits.device)] = 0.0
    return logits


__all__ = ["ConfigT", "NetworkLearner"]


class NetworkLearner(PredictingLearner[ConfigT]):
    """A learner that embeds with a network. Subclasses add ``learn`` and ``scores``.

    A subclass with further state makes it in ``set_up`` and names it in ``parts``; saving, loading
    and refusing follow.
    """

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
        self._network_part = ModulePart("network", network)
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

    def parts(self) -> dict[str, Part]:
        """Everything that is saved, by name."""
        return {
            "outputs": self.outputs,
            "inputs": self.inputs,
            "network": self._network_part,
            "memory": self.memory,
            "generator": GeneratorPart(self.generator),
        }

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
            return in_pieces(self.network, x)

    def inference_module(self) -> nn.Module:
        """Return a copy of the classifier as one module for export, ``[B, ...] -> [B, C]`` logits.

        Only for methods that predict without a task; see ``deepccg.learners.readout``.
        """
        raise InputError(f"{type(self).__name__} predicts under a task only: export another")

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
        self.step(self.gradients(loss), lr)
        return loss.item()

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """The loss's gradient for each of ``trained()``; zeros where it does not depend on it."""
        value = loss.item()
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
            if parameters:
                torch._foreach_sub_(tuple(parameters), tuple(gradients), alpha=lr)
        if not all_finite(parameters):
            raise Diverged(
                f"the weights are not finite after step {self.steps + 1}: try a smaller lr"
            )

    def holdings(self) -> Holdings:
        """The memory: examples with their labels, and what is stored with each."""
        kinds = {"examples": self.memory.bytes, **self.memory.extra_bytes}
        return Holdings(self.memory.size, kinds)
