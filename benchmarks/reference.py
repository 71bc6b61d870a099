"""Plain references: each method as the shortest honest loop that a good researcher would write.

Eager PyTorch, batched tensors, ``torch.optim.SGD``, PyTorch's own instance normalisation, nothing
checked and nothing saved. The memory is full from the start: what is timed is the middle of a
stream. Loops over examples are where a method is sequential by definition (a competition in which
each example meets what the one before it left), and in the two ``OneByOne`` references.

Only speed is compared with these. That the package's methods are right is the tests' matter.
"""

# ruff: noqa: ARG002  (a hook of the base class hands every method more than it needs)

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

LR, BATCH, REPLAY = 0.1, 10, 10


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.InstanceNorm2d(outputs, affine=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.InstanceNorm2d(outputs, affine=True)
        self.shortcut: nn.Module = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.InstanceNorm2d(outputs, affine=True),
            )

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet18 with nf = 10 filters, instance normalisation, 80 features."""

    def __init__(self, nf: int = 10) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, nf, 3, 1, 1, bias=False)
        self.norm = nn.InstanceNorm2d(nf, affine=True)
        blocks = [Block(nf, nf, 1), Block(nf, nf, 1)]
        for width in (nf, 2 * nf, 4 * nf):
            blocks += [Block(width, 2 * width, 2), Block(2 * width, 2 * width, 1)]
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm(self.conv(x.float() / 127.5 - 1)))
        return self.blocks(out).mean(dim=(2, 3))


class SGD:
    """One step on the batch; the base of all others."""

    def __init__(self, x: Tensor, y: Tensor, task: Tensor, masks: Tensor) -> None:
        """A full memory ``x [M, ...]``, ``y [M]``, ``task [M]``; each task's classes ``[T, C]``."""
        self.x, self.y, self.task, self.masks = x.clone(), y.clone(), task.clone(), masks
        self.classes = masks.shape[1]
        self.per_class = len(y) // self.classes
        self.network, self.head = ResNet(), nn.Linear(80, self.classes)
        self.model = nn.Sequential(self.network, self.head)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=LR)
        self.seen = len(y)
        self.setup()

    def setup(self) -> None:
        pass

    def step(self, x: Tensor, y: Tensor, task: Tensor) -> None:
        self.descend(self.cross_entropy(self.model(x), y, task).mean())

    def cross_entropy(self, logits: Tensor, y: Tensor, task: Tensor) -> Tensor:
        allowed = logits.masked_fill(~self.masks[task], -torch.inf)
        return F.cross_entropy(allowed, y, reduction="none")

    def descend(self, loss: Tensor) -> None:
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def reservoir(self, x: Tensor, y: Tensor, task: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.arange(self.seen, self.seen + len(y))
        slots = (torch.rand(len(y)) * (order + 1)).long()
        kept = slots < len(self.y)
        self.x[slots[kept]], self.y[slots[kept]] = x[kept], y[kept]
        self.task[slots[kept]] = task[kept]
        self.seen += len(y)
        return slots[kept], kept


class ER(SGD):
    def step(self, x: Tensor, y: Tensor, task: Tensor) -> None:
        replay = torch.randperm(len(self.y))[:REPLAY]
        inputs, labels = torch.cat([x, self.x[replay]]), torch.cat([y, self.y[replay]])
        tasks = torch.cat([task, self.task[replay]])
        self.descend(self.loss(inputs, labels, tasks))
        self.store(x, y, task, replay)

    def loss(self, x: Tensor, y: Tensor, task: Tensor) -> Tensor:
        return self.cross_entropy(self.model(x), y, task).mean()

    def store(self, x: Tensor, y: Tensor, task: Tensor, replay: Tensor) -> None:
        self.reservoir(x, y, task)


class ERACE(ER):
    def loss(self, x: Tensor, y: Tensor, task: Tensor) -> Tensor:
        logits = self.model(x)
        new = self.cross_entropy(logits[:BATCH], y[:BATCH], task[:BATCH]).mean()
        return new + F.cross_entropy(logits[BATCH:], y[BATCH:])


class DERPP(SGD):
    def setup(self) -> None:
        self.logits = torch.zeros(len(self.y), self.classes)

    def step(self, x: Tensor, y: Tensor, task: Tensor) -> None:
        slots = torch.cat([torch.randperm(len(self.y))[:REPLAY] for _ in range(2)])
        logits = self.model(torch.cat([x, self.x[slots]]))
        labels = torch.cat([y, self.y[slots[:REPLAY]]])
        tasks = torch.cat([task, self.task[slots[:REPLAY]]])
        terms = self.cross_entropy(logits[: BATCH + REPLAY], labels, tasks)
        drift = F.mse_loss(logits[BATCH + REPLAY :], self.logits[slots[REPLAY:]])
        self.descend(terms[:BATCH].mean() + terms[BATCH:].mean() + 0.5 * drift)
        kept_slots, kept = self.reservoir(x, y, task)
        self.logits[kept_slots] = logits[:BATCH].detach()[kept]


class AGEM(SGD):
    def step(self, x: Tensor, y: Tensor, task: Tensor) -> None:
        past = (self.task != task[0]).nonzero().flatten()
        slots = past[torch.randperm(len(past))[:REPLAY]]
        parameters = list(self.model.parameters())
        loss = self.cross_entropy(self.model(x), y, task).mean()
        g = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
        loss = self.cross_entropy(self.model(self.x[slots]), self.y[slots], self.task[slots]).mean()
        ref = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
        if (dot := g @ ref) < 0:
            g = g - dot / (ref @ ref) * ref
        for p, piece in zip(parameters, g.split([p.numel() for p in parameters]), strict=True):
            p.grad = piece.view_as(p)
        self.optimiser.step()
        for label in y.unique():  # a ring for each class
            own, new = (self.y == label).nonzero().flatten(), (y == label).nonzero().flatten()
            self.x[own] = torch.cat([self.x[own], x[new]])[-len(own) :]


class ESMER(SGD):
    def setup(self) -> None:
        self.stable, self.mean = copy.deepcopy(self.model).requires_grad_(False), 2.0

    def step(self, x: Tensor, y: Tensor, task: Tensor) -> None:
        replay = torch.randperm(len(self.y))[:REPLAY]
        inputs, labels = torch.cat([x, self.x[replay]]), torch.cat([y, self.y[replay]])
        tasks = torch.cat([task, self.task[replay]])
        with torch.no_grad():
            stable = self.stable(inputs)
        error = self.cross_entropy(stable[:BATCH], y, task)
        logits = self.model(inputs)
        terms = self.cross_entropy(logits, labels, tasks)
        weight = torch.where(error <= self.mean, torch.ones_like(error), self.mean / error)
        loss = (weight * terms[:BATCH]).mean() + terms[BATCH:].mean()
        self.descend(loss + 0.15 * F.mse_loss(logits[BATCH:], stable[BATCH:]))
        small = error <= self.mean
        self.reservoir(x[small], y[small], task[small])
        if torch.rand(()) < 0.7:
            for s, w in zip(self.stable.parameters(), self.model.parameters(), strict=True):
                s.lerp_(w.detach(), 0.001)
        self.mean = 0.99 * self.mean + 0.01 * error[error <= error.mean() + error.std()].mean()


def keep_nearest(self: SGD, x: Tensor, y: Tensor, z: Tensor, z_stored: Tensor) -> None:
    """Greedy removal: the class's mean stays near that of stored and new examples (Eq. 10)."""
    for label in y.unique():
        own, new = (self.y == label).nonzero().flatten(), (y == label).nonzero().flatten()
        pool = torch.cat([z_stored[own], z[new]])
        centred = pool - pool.mean(dim=0)
        keep = torch.ones(len(pool), dtype=torch.bool)
        for _ in range(len(new)):
            cost = (centred[keep].sum(dim=0) - centred).square().sum(dim=1)
            keep[cost.masked_fill(~keep, torch.inf).argmin()] = False
        self.x[own] = torch.cat([self.x[own], x[new]])[keep]


class ICaRL(ER):
    def setup(self) -> None:
        self.teacher = copy.deepcopy(self.model).requires_grad_(False)

    def loss(self, x: Tensor, y: Tensor, task: Tensor) -> Tensor:
        target = F.one_hot(y, self.classes).float()
        old = ~self.masks[task[0]]
        with torch.no_grad():
            target[:, old] = self.teacher(x)[:, old].sigmoid()
        each = F.binary_cross_entropy_with_logits(self.model(x), target, reduction="none")
        return each.sum(dim=1).mean()

    def store(self, x: Tensor, y: Tensor, task: Tensor, replay: Tensor) -> None:
        needed = torch.isin(self.y, y).nonzero().flatten()
        with torch.no_grad():
            z = F.normalize(self.network(torch.cat([x, self.x[needed]])), dim=1)
        for label in y.unique():  # herding
            own, new = (self.y == label).nonzero().flatten(), (y == label).nonzero().flatten()
            pool = torch.cat([z[BATCH:][self.y[needed] == label], z[new]])
            centred, total = pool - pool.mean(dim=0), torch.zeros(80)
            picked: list[int] = []
            for _ in range(len(own)):
                cost = (total + centred).square().sum(dim=1)
                cost[picked] = torch.inf
                picked.append(int(cost.argmin()))
                total = total + centred[picked[-1]]
            self.x[own] = torch.cat([self.x[own], x[new]])[picked]


class DeepCCG(SGD):
    """Embeds, without gradient, the stored examples of all classes the step's masks name."""

    def step(self, x: Tensor, y: Tensor, task: Tensor) -> None:
        replay = torch.randperm(len(self.y))[:REPLAY]
        mask = torch.cat([self.masks[task], self.replay_masks(self.task[replay])])
        needed = mask.any(dim=0)[self.y]
        needed[replay] = False
        with torch.no_grad():
            z_rest = self.network(self.x[needed])
        z = self.network(torch.cat([x, self.x[replay]]))
        y_rest = self.y[needed]
        count = torch.bincount(y_rest, minlength=self.classes).float().clamp(min=1)
        mean = torch.zeros(self.classes, 80).index_add(0, y_rest, z_rest) / count[:, None]
        scale = (z_rest - mean[y_rest]).T.cov().norm().rsqrt()
        logits = self.logits(scale, z, mean, count).masked_fill(~mask, -torch.inf)
        self.descend(F.cross_entropy(logits, torch.cat([y, self.y[replay]])))
        z_stored = torch.zeros(len(self.y), 80)
        z_stored[needed], z_stored[replay] = z_rest, z[BATCH:].detach()
        self.store(x, y, task, z[:BATCH].detach(), z_stored)

    def replay_masks(self, task: Tensor) -> Tensor:
        return self.masks[task]

    def logits(self, scale: Tensor, z: Tensor, mean: Tensor, count: Tensor) -> Tensor:
        return -torch.cdist(scale * z, scale * mean).square() / 2 / (1 + 1 / count)

    def store(self, x: Tensor, y: Tensor, task: Tensor, z: Tensor, z_stored: Tensor) -> None:
        keep_nearest(self, x, y, z, z_stored)


class DeepCCGReservoir(DeepCCG):
    def store(self, x: Tensor, y: Tensor, task: Tensor, z: Tensor, z_stored: Tensor) -> None:
        self.reservoir(x, y, task)


class ProtoCL(DeepCCGReservoir):
    def setup(self) -> None:
        self.noise = nn.Parameter(torch.full((80,), 0.25).log())
        self.optimiser = torch.optim.SGD([*self.network.parameters(), self.noise], lr=LR)

    def logits(self, scale: Tensor, z: Tensor, mean: Tensor, count: Tensor) -> Tensor:
        noise = self.noise.exp()
        variance = 1 / (1 + count[:, None] / noise)
        total = variance + noise
        centre = variance * count[:, None] * mean / noise
        distance = ((z[:, None] - centre) ** 2 / total).sum(dim=2)
        return count.log() - 0.5 * (distance + total.log().sum(dim=1))


class DeepCCGStandardHead(ER):
    def step(self, x: Tensor, y: Tensor, task: Tensor) -> None:
        replay = torch.randperm(len(self.y))[:REPLAY]
        inputs, labels = torch.cat([x, self.x[replay]]), torch.cat([y, self.y[replay]])
        loss = self.loss(inputs, labels, torch.cat([task, self.task[replay]]))
        needed = torch.isin(self.y, y)
        z_stored = torch.zeros(len(self.y), 80)
        with torch.no_grad():
            embedded = self.network(torch.cat([x, self.x[needed]]))
        z_stored[needed] = embedded[BATCH:]
        keep_nearest(self, x, y, embedded[:BATCH], z_stored)
        self.descend(loss)


class EWC(SGD):
    """Per-example gradients by vectorising the network over its weights."""

    def setup(self) -> None:
        self.fisher = [torch.rand_like(p) * 1e-3 for p in self.model.parameters()]
        self.centre = [p.detach().clone() for p in self.model.parameters()]
        self.running = [torch.zeros_like(p) for p in self.model.parameters()]

    def gradients(self, x: Tensor, y: Tensor, task: Tensor) -> list[Tensor]:
        weights = {name: p.detach() for name, p in self.model.named_parameters()}

        def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor, task: Tensor) -> Tensor:
            logits = functional_call(self.model, weights, x[None])
            return self.cross_entropy(logits, y[None], task[None]).squeeze(0)

        return list(vmap(grad(loss), (None, 0, 0, 0))(weights, x, y, task).values())

    def step(self, x: Tensor, y: Tensor, task: Tensor) -> None:
        each = self.gradients(x, y, task)
        for i, p in enumerate(self.model.parameters()):
            self.running[i] += each[i].square().sum(dim=0)
            pull = 6 * self.fisher[i] * (p.detach() - self.centre[i])
            p.grad = each[i].mean(dim=0) + pull
        self.optimiser.step()


def one_by_one(self: SGD, x: Tensor, y: Tensor, task: Tensor) -> list[Tensor]:
    """A forward and a backward pass for each example."""
    each = []
    for i in range(len(y)):
        loss = self.cross_entropy(self.model(x[i : i + 1]), y[i : i + 1], task[i : i + 1])
        each.append(torch.autograd.grad(loss.sum(), list(self.model.parameters())))
    return [torch.stack(pieces) for pieces in zip(*each, strict=True)]


class EWCOneByOne(EWC):
    gradients = one_by_one


class GSS(ER):
    gradients = EWC.gradients

    def setup(self) -> None:
        self.score = torch.rand(len(self.y)) + 0.5

    def store(self, x: Tensor, y: Tensor, task: Tensor, replay: Tensor) -> None:
        drawn = torch.randperm(len(self.y))[:REPLAY]
        each = self.gradients(
            torch.cat([x, self.x[drawn]]),
            torch.cat([y, self.y[drawn]]),
            torch.cat([task, self.task[drawn]]),
        )
        flat = F.normalize(torch.cat([g.flatten(1) for g in each], dim=1), dim=1)
        score = 1 + (flat[:BATCH] @ flat[BATCH:].T).amax(dim=1)
        for i in (score < 1).nonzero().flatten():
            slot = torch.multinomial(self.score, 1)
            if torch.rand(()) < self.score[slot] / (self.score[slot] + score[i]):
                self.x[slot], self.y[slot], self.task[slot] = x[i], y[i], task[i]
                self.score[slot] = score[i]


class GSSOneByOne(GSS):
    gradients = one_by_one


class PackNet(SGD):
    """The second half of a task: gradients of frozen filters are dropped, free filters are off."""

    def setup(self) -> None:
        self.mine: list[Tensor] = []
        for module in self.network.modules():
            if isinstance(module, nn.Conv2d | nn.InstanceNorm2d):
                width = len(module.weight)
                off = (torch.arange(width) >= 0.9 * width)[:, None, None]
                module.register_forward_hook(lambda _, __, out, off=off: out.masked_fill(off, 0))
        for p in self.network.parameters():
            mine = torch.arange(len(p)) % 10 == 8
            self.mine.append(mine.view(-1, *[1] * (p.ndim - 1)))

    def descend(self, loss: Tensor) -> None:
        self.optimiser.zero_grad()
        loss.backward()
        for p, mine in zip(self.network.parameters(), self.mine, strict=True):
            p.grad *= mine
        self.optimiser.step()


class EntropySS(ER):
    def store(self, x: Tensor, y: Tensor, task: Tensor, replay: Tensor) -> None:
        for i in range(len(y)):  # each meets the memory that the one before it left
            own = (self.y == y[i]).nonzero().flatten()
            pool = torch.cat([self.x[own], x[i : i + 1]]).flatten(1).float()
            apart = torch.cdist(pool, pool).fill_diagonal_(torch.inf)
            near = apart.topk(2, largest=False)
            first, second = near.values.clamp(min=1e-12).log().unbind(1)
            rise = torch.zeros(len(pool)).index_add(0, near.indices[:, 0], second - first)
            leaves = int((rise - first).argmax())
            if leaves < len(own):
                self.x[own[leaves]] = x[i]


class InfoGS(ER):
    def setup(self) -> None:
        self.feature = torch.randn(len(self.y), 80)

    def store(self, x: Tensor, y: Tensor, task: Tensor, replay: Tensor) -> None:
        with torch.no_grad():
            z = self.network(torch.cat([x, self.x[replay]]))
        self.feature[replay] = z[BATCH:]
        for i in range(len(y)):  # each meets the memory that the one before it left
            phi = torch.cat([self.feature, z[i : i + 1]]).double() / 80**0.5
            target = F.one_hot(torch.cat([self.y, y[i : i + 1]]), self.classes).double()
            known, noise = phi[:-1], 0.1
            inverse = torch.linalg.inv(known.T @ known / noise + torch.eye(80).double())
            residual = target - phi @ (inverse @ (known.T @ target[:-1]) / noise)
            leverage = ((phi @ inverse) * phi).sum(dim=1)
            sign = torch.ones(len(phi)).double()
            sign[-1] = -1.0

            def density(factor: Tensor, residual: Tensor = residual, lev: Tensor = leverage):
                variance = 0.1 + factor * lev
                square = (factor[:, None] * residual).square().sum(dim=1)
                return -0.5 * (self.classes * variance.log() + square / variance)

            other = noise / (noise - sign * leverage)
            one = torch.ones_like(other)
            new = sign < 0
            criterion = density(torch.where(new, other, one)) - density(
                torch.where(new, one, other)
            )
            slot = int(criterion[:-1].argmin())
            if criterion[-1] > criterion[slot]:
                self.x[slot], self.y[slot], self.task[slot] = x[i], y[i], task[i]
                self.feature[slot] = z[i]


REFERENCES: dict[str, type[SGD]] = {
    "sgd": SGD,
    "multi-task": SGD,
    "er": ER,
    "er-ace": ERACE,
    "derpp": DERPP,
    "agem": AGEM,
    "esmer": ESMER,
    "icarl": ICaRL,
    "gss": GSS,
    "entropy-ss": EntropySS,
    "infogs": InfoGS,
    "ewc": EWC,
    "packnet": PackNet,
    "protocl": ProtoCL,
    "deepccg": DeepCCG,
    "deepccg-reservoir": DeepCCGReservoir,
    "deepccg-standard-head": DeepCCGStandardHead,
}
ONE_BY_ONE: dict[str, type[SGD]] = {"gss": GSSOneByOne, "ewc": EWCOneByOne}
