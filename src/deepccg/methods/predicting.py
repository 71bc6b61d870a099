"""Predictions of every method on a network: scores, masks, and what is not known."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from deepccg.core import InputError, Task
from deepccg.methods.outputs import Outputs
from deepccg.methods.saving import ConfigT, SavedLearner


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
