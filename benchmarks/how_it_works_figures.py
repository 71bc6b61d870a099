"""Write the figures of docs/how_it_works.md, each from a computation of the library.

Run it: ``make figures``
"""

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from plane_drawing import colours, draw_gaussians, draw_points, draw_regions

from deepccg import Batch
from deepccg.demo import simulate
from deepccg.demo.page import telling_batch
from deepccg.gaussian import (
    Candidates,
    class_posterior,
    greedy_selection,
    log_conditional_marginal_likelihood,
    log_predictive_density,
    squared_distances,
)
from deepccg.methods import CCG
from deepccg.networks import Flatten
from deepccg.report.figures import LIGHT

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    """Write all of them."""
    mpl.use("Agg")
    mpl.rcParams.update({"font.size": 9, "axes.titlesize": 9, "axes.spines.top": False,
                         "axes.spines.right": False, "legend.frameon": False})  # fmt: skip
    for draw in (shift, gaussian, posterior, loss, memory, closed_form):
        figure = draw()
        path = IMAGES / f"how-{draw.__name__.replace('_', '-')}.png"
        figure.savefig(path, dpi=110, metadata={"Software": None})
        plt.close(figure)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def planes(count: int) -> tuple[Any, Any]:
    """A row of square panels."""
    figure, axes = plt.subplots(1, count, figsize=(2.6 * count, 2.85))
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.9, wspace=0.04)
    return figure, axes


def shift() -> Any:
    """One step of the demo: before it, after it with the old classifier, and recomputed."""
    run = simulate(seed=0)
    deepccg, names = run.trajectories["deepccg"], [str(label) for label in run.classes]
    after = telling_batch(deepccg, run.tasks)
    figure, axes = planes(3)
    scores = deepccg.accuracy[after - 1], deepccg.stale[after], deepccg.accuracy[after]
    titles = "before the step", "after it, the old classifier", "after it, recomputed"
    for axis, title, score, z, surface in zip(
        axes, titles, scores, (after - 1, after, after), (after - 1, after - 1, after), strict=True
    ):
        draw_regions(axis, deepccg.surfaces[surface])
        came_from = deepccg.positions[z - 1] if z == after else None
        points = deepccg.positions[z]
        draw_points(axis, points, run.labels, deepccg.surfaces[surface], came_from)
        draw_gaussians(axis, deepccg.surfaces[surface], names)
        axis.set_title(f"{title}: {100 * score:.0f} %")
    return figure


def gaussian() -> Any:
    """Three class densities on a line, and what Bayes' rule makes of them."""
    line, means = torch.linspace(-5, 5, 401)[:, None], torch.tensor([[-2.0], [0.5], [2.5]])
    distance, allowed = squared_distances(line, means), torch.ones(len(line), 3, dtype=torch.bool)
    endless = torch.full((3,), math.inf)  # examples: the means are known
    density = log_predictive_density(distance, endless, allowed, 1, "per-class")
    figure, axes = plt.subplots(1, 2, figsize=(7.8, 2.1), layout="constrained")
    curves = {
        "density of each class": density.exp(),
        "probability of each class": density.softmax(dim=1),
    }
    for axis, (title, curve) in zip(axes, curves.items(), strict=True):
        for c, values in enumerate(curve.T):
            axis.plot(line, values, color=LIGHT[c])
            axis.fill_between(line[:, 0], values, color=LIGHT[c], alpha=0.15, linewidth=0)
        axis.set(title=title, xlabel="z", ylim=0)
    for c, mean in enumerate(means[:, 0]):
        axes[0].annotate(rf"$\mu_{c}$", (mean, 0.41), ha="center", annotation_clip=False)
    axes[0].set_ylim(0, 0.46)
    return figure


def posterior() -> Any:
    """What 1, 4 and 16 stored examples say of a class mean, and of the next example."""
    line = torch.linspace(-4, 4, 321)[:, None]
    draws = 0.6 + torch.randn(16, 1, generator=torch.Generator().manual_seed(3))
    figure, axes = plt.subplots(1, 3, figsize=(7.8, 2.4), sharey=True, layout="constrained")
    for axis, count in zip(axes, (1, 4, 16), strict=True):
        found = class_posterior(draws[:count], torch.zeros(count, dtype=torch.long), 1)
        distance, all_of_them = squared_distances(line, found.mean), torch.ones(len(line), 1) > 0
        next_one = log_predictive_density(distance, found.count, all_of_them, 1, "per-class").exp()
        of_mean = (-count * distance / 2).exp() * math.sqrt(count / (2 * math.pi))
        axis.fill_between(line[:, 0], of_mean[:, 0], color=LIGHT[0], alpha=0.2, linewidth=0)
        axis.plot(line, of_mean, color=LIGHT[0], label=r"class mean, $p(\mu_c \mid M)$")
        axis.plot(line, next_one, color=LIGHT[1], label=r"next example, $p(z \mid c, M)$")
        axis.plot(
            draws[:count], torch.zeros(count), "|", color="black", markersize=9, clip_on=False,
            label="stored examples",
        )  # fmt: skip
        axis.set(title=f"{count} stored example{'s' * (count > 1)}", xlabel="z", ylim=(0, 1.7))
    axes[0].legend(loc="upper left", fontsize=7.5)
    return figure


def loss() -> Any:
    """Where a gradient step on the conditional marginal likelihood wants each example to go."""
    generator = torch.Generator().manual_seed(2)
    means = torch.tensor([[-1.3, -0.8], [1.3, -0.8], [0.0, 1.4]])
    y_memory, y = torch.arange(3).repeat(10), torch.arange(3).repeat(6)
    memory = means[y_memory] + 0.5 * torch.randn(30, 2, generator=generator)
    z = (means[y] + 0.9 * torch.randn(18, 2, generator=generator)).requires_grad_()
    found, mask = class_posterior(memory, y_memory, 3), torch.ones(18, 3, dtype=torch.bool)
    distance = squared_distances(z, found.mean)
    density = log_predictive_density(distance, found.count, mask, 2, "shared")
    log_prob, _ = log_conditional_marginal_likelihood(density, y)
    log_prob.sum().backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    figure, axis = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
    axis.scatter(*memory.T, s=12, c=colours(y_memory.numpy()), marker="s", alpha=0.35)
    axis.scatter(*found.mean.T, s=130, c=colours(np.arange(3)), marker="X", edgecolors="white")
    where, way = z.detach().numpy(), z.grad.numpy()
    axis.quiver(*where.T, *way.T, color=colours(y.numpy()), angles="xy", scale_units="xy",
                scale=1.5, width=0.005)  # fmt: skip
    axis.scatter(*where.T, s=26, c=colours(y.numpy()), edgecolors="white", linewidths=0.7, zorder=3)
    names = {"s": "stored example", "X": "class mean", "o": "new example, and its gradient"}
    for marker, name in names.items():
        axis.plot([], [], marker, color="#5A6472", label=name)
    axis.legend(loc="upper left", fontsize=7.5)
    axis.set(title=f"mean log probability {log_prob.mean():.2f}", aspect="equal",
             xlim=(-4.1, 2.9))  # fmt: skip
    without_frame(axis)
    return figure


def memory() -> Any:
    """Five of forty candidates: chosen, and drawn at random."""
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(1, 40, 2, generator=generator)
    everything, target = torch.ones(1, 40, dtype=torch.bool), z.mean(dim=1)
    five, seen = torch.tensor([5]), torch.tensor([35])
    candidates = Candidates(z, everything, everything, target, five, seen)
    random = torch.zeros(40, dtype=torch.bool)
    random[torch.randperm(40, generator=generator)[:5]] = True
    kept = {"chosen": greedy_selection(candidates, generator)[0], "drawn at random": random}
    figure, axes = plt.subplots(1, 2, figsize=(6.2, 3.0), layout="constrained")
    for axis, (name, keep) in zip(axes, kept.items(), strict=True):
        mean = z[0, keep].mean(dim=0)
        axis.scatter(*z[0].T, s=14, color="#B8BEC6", label="not stored")
        axis.scatter(*z[0, keep].T, s=34, color=LIGHT[0], label="stored")
        axis.plot(*target[0], "+", color="black", markersize=15, mew=2, label="mean of all 40")
        axis.plot(*mean, "x", color=LIGHT[1], markersize=10, mew=2.5, label="mean of the stored")
        apart = float((mean - target[0]).norm())
        axis.set(title=f"{name}: means {apart:.3f} apart", aspect="equal")
        without_frame(axis)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=7.5, loc="outside lower center", ncols=4)
    return figure


def without_frame(axis: Any) -> None:
    """Take away what tells where the plane has its origin: only distances count."""
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)


def closed_form() -> Any:
    """Regions of the nearest class mean, and of Gaussians that share a learned covariance."""
    generator = torch.Generator().manual_seed(0)
    shape = torch.tensor([[1.5, 0.0], [1.2, 0.35]])  # long and thin
    means = torch.tensor([[-0.9, 0.5], [0.0, 0.0], [0.9, -0.5]])
    y = torch.arange(3).repeat_interleave(40)  # class by class: the order does not matter
    x = means[y] + 0.55 * torch.randn(120, 2, generator=generator) @ shape.T
    figure, axes = planes(2)
    kinds = {"nearest class mean": "isotropic", "one covariance for all": "shared"}
    for axis, (name, covariance) in zip(axes, kinds.items(), strict=True):
        learner = CCG(Flatten(2), CCG.Config(covariance=covariance))
        learner.learn(Batch(x, y))
        right = float((learner.predict(x) == y).double().mean())
        surface = plane_scores(learner)
        draw_regions(axis, surface)
        draw_points(axis, x.numpy(), y.numpy(), surface, None)
        axis.set_title(f"{name}: {100 * right:.0f} % right")
    return figure


def plane_scores(learner: CCG) -> np.ndarray:
    """``k, l_x, l_y`` of each class from log densities at three places; squares cancel."""
    places = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    middle, right, up = learner.predict_logits(places).log_softmax(dim=1).double().numpy()
    return np.stack([middle, right - middle, up - middle, np.zeros_like(middle)], axis=1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
