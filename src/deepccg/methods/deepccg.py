"""Deep Class-Conditional Gaussians: a classifier recomputed from memory, never learned."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepccg.core import Batch, Diverged, State, StepInfo
from deepccg.gaussian import (
    Candidates,
    Posterior,
    class_posterior,
    fitted_scale,
    greedy_selection,
    lasso_selection,
    leave_one_out_distances,
    log_conditional_marginal_likelihood,
    log_predictive_density,
    squared_distances,
    swap_selection,
    target_mean,
)
from deepccg.memory import (
    balanced_random,
    candidates_of,
    class_balanced_reservoir,
    class_quotas,
)
from deepccg.methods.base import NetworkLearner
from deepccg.methods.deepccg_config import DeepCCGConfig
from deepccg.methods.losses import reduce
from deepccg.methods.parts import ModulePart, Part
from deepccg.methods.replay import draw_balanced, draw_uniform, give_back


class Scale(nn.Module):
    """The one learned number of ``embedding_scale=learned``: the log of the scale."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(start).log())


class DeepCCG(NetworkLearner[DeepCCGConfig]):
    r"""DeepCCG: class means from memory, embedding by conditional marginal likelihood.

    Each step draws a replay R from memory M, conditions the posterior over class means on M \ R
    (Eq. 7), takes one gradient step on ``-log p(y | z, own task, M \ R)`` over batch and R
    (Eqs. 8, 9), and reselects the memory of the batch's classes (Eqs. 10, 12). There is no head:
    after the network moved, the classifier is the posterior given M under the new network.

    The embedding is ``scale * network(x)``. Reference: Lee & Storkey, "Approximate Bayesian
    Class-Conditional Models under Continuous Representation Shift", AISTATS 2024.
    """

    Config = DeepCCGConfig

    def __init__(
        self,
        network: nn.Module,
        config: DeepCCGConfig | None = None,
        *,
        memory: int = 0,
        classes: Sequence[int] = (),
        seed: int = 0,
    ) -> None:
        super().__init__(network, config, memory=memory, classes=classes, seed=seed)
        self.scale = Scale(self.config.initial_scale).to(self.device, self.dtype)
        self._belief: tuple[Posterior, Tensor] | None = None  # derived; dropped when weights move

    def learn(self, batch: Batch) -> StepInfo:
        """Condition on memory, step the embedding, reselect the memory."""
        x, y, rows = self.receive(batch)
        self._belief = None
        drawn = self.draw_replay()
        replay = drawn if self.config.replay_draw == "literal" else give_back(drawn, self.memory.y)
        mask = self._mask(rows, replay)
        over = self._over_quota()
        rest = self._slots_needed(mask, y, over, replay)
        fresh, z_rest = self._embed_step(x, replay, rest)
        if not bool(torch.isfinite(fresh).all()):
            raise Diverged(f"embeddings are not finite at step {self.steps}: try a smaller lr")
        loss, terms, scale = self._loss(fresh, z_rest, y, replay, rest, mask)
        value = self.descend(loss, self.config.lr) if terms else 0.0
        known = fresh.new_empty(self.memory.size, fresh.shape[1])
        known[rest], known[replay] = z_rest.detach(), fresh[len(y) :].detach()
        self._reselect(x, y, rows, known, fresh[: len(y)].detach(), over, scale)
        self.steps += 1
        extra = {"terms": terms, "returned": len(drawn) - len(replay), "scale": scale}
        return StepInfo(loss=value, replayed=len(replay), extra=extra)

    def draw_replay(self) -> Tensor:
        """Slots of R; at most half of the memory, so that something is left to condition on."""
        count = self.config.replay
        if self.config.replay_draw == "half":
            count = min(count, self.memory.size // 2)
        draw = draw_uniform if self.config.replay_sampling == "uniform" else draw_balanced
        return draw(self.memory.y, count, self.generator)

    def _mask(self, rows: Tensor, replay: Tensor) -> Tensor:
        train = self.outputs.mask(self.config.train_mask, rows)
        again = self.outputs.mask(self.config.replay_mask, self.memory.task[replay])
        return torch.cat([train, again]).to(self.device)

    def _slots_needed(self, mask: Tensor, y: Tensor, over: list[int], replay: Tensor) -> Tensor:
        """Stored examples outside R whose class some mask allows or whose memory may change."""
        needed = mask.any(dim=0)
        needed[y] = True
        needed[over] = True
        wanted = needed[self.memory.y]
        wanted[replay] = False
        return wanted.nonzero().flatten()

    def _embed_step(self, x: Tensor, replay: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of batch and replay with gradient, and of ``rest``, by default without."""
        stepped = torch.cat([x, self.memory.x[replay]]) if len(replay) else x
        if self.config.mean_gradient and len(rest):
            self.network.train()
            z = self._shape(self.network(torch.cat([stepped, self.memory.x[rest]])))
            return z[: len(stepped)], z[len(stepped) :]
        conditioning = self._embed_stored(rest)
        self.network.train()
        return self._shape(self.network(stepped)), conditioning

    def _embed_stored(self, slots: Tensor) -> Tensor:
        if len(slots) == 0:
            return torch.zeros(0, self.dim, dtype=self.dtype, device=self.device)
        return self._shape(self.embed(self.memory.x[slots]))

    def _shape(self, z: Tensor) -> Tensor:
        return F.normalize(z, dim=1) if self.config.normalise else z

    def _loss(
        self, z: Tensor, z_rest: Tensor, y: Tensor, replay: Tensor, rest: Tensor, mask: Tensor
    ) -> tuple[Tensor, int, float]:
        """Negative log conditional marginal likelihood (Eq. 9), its number of terms, the scale."""
        classes = torch.cat([y, self.memory.y[replay]])
        posterior = class_posterior(z_rest, self.memory.y[rest], len(self.outputs))  # Eq. 7
        scale = self._scale_of(z_rest.detach(), self.memory.y[rest], posterior)
        distance = squared_distances(z, posterior.mean)
        count = posterior.count.expand_as(distance)
        if self.config.absent == "batch":
            distance, count = _fill_from_batch(distance, count, z, y)
        density = log_predictive_density(
            distance * scale.square(), count, mask, self.dim, self.config.variance
        )
        terms, _ = log_conditional_marginal_likelihood(density, classes)  # Eq. 8
        loss = -reduce(terms, self.config.reduction) if len(terms) else z.sum() * 0
        return loss, len(terms), float(scale.detach())

    def _scale_of(self, z: Tensor, y: Tensor, posterior: Posterior) -> Tensor:
        if self.config.embedding_scale == "learned":
            return self.scale.log.exp()
        if self.config.embedding_scale == "fitted":
            fixed = Posterior(posterior.mean.detach(), posterior.count)
            return fitted_scale(z, y, fixed)
        return torch.tensor(self.config.embedding_scale, dtype=self.dtype, device=self.device)

    def _quotas(self) -> Tensor:
        """How many examples each class may store, ``[C]``; the first seen get the remainder."""
        fixed = self.config.quota == "fixed"
        n_classes = len(self.outputs) if fixed else len(self.outputs.arrival)
        quotas = torch.zeros(len(self.outputs), dtype=torch.int64)
        shares = class_quotas(self.memory.capacity, n_classes)[: len(self.outputs.arrival)]
        quotas[self.outputs.arrival] = torch.tensor(shares)
        return quotas

    def _over_quota(self) -> list[int]:
        """Classes that must give examples up because further classes arrived."""
        stored = torch.bincount(self.memory.y, minlength=len(self.outputs)).cpu()
        return (stored > self._quotas()).nonzero().flatten().tolist()

    def _reselect(
        self,
        x: Tensor,
        y: Tensor,
        rows: Tensor,
        known: Tensor,
        fresh: Tensor,
        over: list[int],
        scale: float,
    ) -> None:
        """Fill each class's quota with the best of what is stored and what is new (Eq. 10)."""
        classes = sorted({*y.tolist(), *over})
        index = candidates_of(classes, self.memory, y)
        quota = self._quotas()[classes].to(self.device)
        if bool((index.real.sum(dim=1) <= quota).all()):
            index.apply(index.real, self.memory, x, y, rows)
            return
        if self.config.selection_features == "after":
            slots = index.position[index.stored]
            known[slots], fresh = self._embed_stored(slots), self._shape(self.embed(x))
        new = torch.bincount(y, minlength=len(self.outputs))
        seen = (self.outputs.seen.to(self.device) - new)[classes]
        z = torch.cat([known, fresh])[index.position] * scale
        target = torch.stack(
            [
                target_mean(
                    z[k, index.stored[k]],
                    z[k, index.real[k] & ~index.stored[k]],
                    int(seen[k]) if self.config.target == "evidence" else None,
                )
                for k in range(len(classes))
            ]
        )
        candidates = Candidates(z, index.real, index.stored, target, quota, seen)
        index.apply(self._select(candidates), self.memory, x, y, rows)

    def _select(self, candidates: Candidates) -> Tensor:
        if self.config.selector == "lasso":
            return lasso_selection(candidates, self.config.lasso, self.generator)
        return SELECTORS[self.config.selector](candidates, self.generator)

    def scores(self, x: Tensor) -> Tensor:
        """Squared distances to the class means given all of memory, ``[B, C]``."""
        posterior, scale = self.belief()
        return squared_distances(self._shape(self.embed(x)), posterior.mean) * scale.square()

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Log predictive densities of the allowed classes (Eq. 8)."""
        posterior, _ = self.belief()
        allowed = mask.expand_as(scores)
        return log_predictive_density(
            scores, posterior.count, allowed, self.dim, self.config.variance
        )

    @torch.no_grad()
    def belief(self) -> tuple[Posterior, Tensor]:
        """The posterior given all of memory under the present network, and the scale."""
        if self._belief is None:
            y = self.memory.y
            z = self._embed_stored(torch.arange(len(y), device=self.device))
            posterior = class_posterior(z, y, len(self.outputs))  # Eq. 7 with D = M
            self._belief = posterior, self._scale_of(z, y, posterior)
        return self._belief

    def modules(self) -> list[nn.Module]:
        """The network, and the scale where it is learned."""
        learned = self.config.embedding_scale == "learned"
        return [self.network, self.scale] if learned else [self.network]

    def parts(self) -> dict[str, Part]:
        """No head: the classifier is derived from network and memory."""
        return {
            **super().parts(),
            "scale": ModulePart("scale", self.scale),
        }

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        super().load_state_dict(state)
        self._belief = None


SELECTORS = {
    "greedy": greedy_selection,
    "swap": swap_selection,
    "reservoir": class_balanced_reservoir,
    "random": balanced_random,
}


def _fill_from_batch(
    distance: Tensor, count: Tensor, z: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """For classes memory does not know, measure the batch against its own leave-one-out means."""
    size, n_classes = len(y), distance.shape[1]
    from_batch, batch_count = leave_one_out_distances(z[:size], y, n_classes)
    absent = count[:size] == 0
    distance = torch.cat([torch.where(absent, from_batch, distance[:size]), distance[size:]])
    count = torch.cat([torch.where(absent, batch_count, count[:size]), count[size:]])
    return distance, count
