"""The demo shows what the learners do: its surfaces classify as they do, after every batch."""

import numpy as np
import pytest
import torch

from deepccg.demo.simulate import CLASSES, REACH, Planar, simulate


@pytest.fixture(scope="module")
def shown():
    return simulate(seed=1, shown_per_class=5)


@pytest.fixture(scope="module")
def whole():
    """With every test image shown."""
    return simulate(seed=1, shown_per_class=1000)


def winners(surface, z):
    """Class of the highest ``k + l . z - a |z|^2``, by hand."""
    scores = [
        -np.inf if np.isnan(k) else k + lx * x + ly * y - a * (x * x + y * y)
        for x, y in z.astype(np.float64)
        for k, lx, ly, a in surface.astype(np.float64)
    ]
    return np.array(scores).reshape(len(z), len(surface)).argmax(axis=1)


def test_trajectories_cover_the_stream(shown):
    batches = len(shown.tasks)
    assert sorted(set(shown.tasks.tolist())) == [0, 1, 2]
    assert (np.diff(shown.tasks) >= 0).all()
    assert len(set(shown.classes)) == CLASSES
    assert np.bincount(shown.labels).tolist() == [5] * CLASSES
    for trajectory in shown.trajectories.values():
        assert trajectory.positions.shape == (batches, 5 * CLASSES, 2)
        assert trajectory.surfaces.shape == (batches, CLASSES, 4)
        assert np.abs(trajectory.positions).max() <= REACH
        assert 0 <= trajectory.accuracy.min() <= trajectory.accuracy.max() <= 1


def test_classes_have_a_surface_from_their_first_batch_on(shown):
    for trajectory in shown.trajectories.values():
        come = ~np.isnan(trajectory.surfaces[:, :, 0])
        assert (np.diff(come.astype(int), axis=0) >= 0).all()
        for batch, task in enumerate(shown.tasks):
            assert not come[batch, 2 * (task + 1) :].any()
        assert come[-1].all()


def test_gaussians_bend_and_a_head_does_not(shown):
    known = shown.trajectories["deepccg"].surfaces[-1]
    assert (known[:, 3] > 0).all()
    assert np.nanmax(np.abs(shown.trajectories["er"].surfaces[..., 3])) < 1e-5
    # Scale 2 is a standard deviation of 1/2; a mean of 10 stored examples adds a tenth of it.
    assert 1 / np.sqrt(2 * known[:, 3]) == pytest.approx(0.5 * np.sqrt(1 + 1 / 10), rel=1e-3)


def test_surfaces_classify_as_the_learners_do(whole):
    """With every test image shown, the surfaces give the accuracy that was measured."""
    for trajectory in whole.trajectories.values():
        for batch in (0, 10, 30, 58, len(whole.tasks) - 1):
            come = ~np.isnan(trajectory.surfaces[batch, :, 0])
            known = come[whole.labels]
            right = winners(trajectory.surfaces[batch], trajectory.positions[batch][known])
            accuracy = (right == whole.labels[known]).mean()
            assert accuracy == pytest.approx(trajectory.accuracy[batch], abs=2 / known.sum())


def test_the_classifier_before_the_step_is_scored_on_the_embeddings_after_it(whole):
    for trajectory in whole.trajectories.values():
        assert np.isnan(trajectory.stale[0])
        for batch in (1, 28, 35, 60, len(whole.tasks) - 1):
            before = trajectory.surfaces[batch - 1]
            known = ~np.isnan(before[whole.labels, 0])
            right = winners(before, trajectory.positions[batch][known])
            accuracy = (right == whole.labels[known]).mean()
            assert accuracy == pytest.approx(trajectory.stale[batch], abs=2 / known.sum())


def test_the_gaussians_of_the_step_before_no_longer_fit(shown):
    deepccg = shown.trajectories["deepccg"]
    later = shown.tasks > 0
    assert (deepccg.stale - deepccg.accuracy)[later].mean() < -0.05


def test_the_same_seed_gives_the_same_run(shown):
    state = torch.get_rng_state()
    again = simulate(seed=1, shown_per_class=5)
    assert torch.equal(torch.get_rng_state(), state)
    assert again.classes == shown.classes
    for name, trajectory in shown.trajectories.items():
        assert np.array_equal(trajectory.positions, again.trajectories[name].positions)
        assert np.array_equal(
            trajectory.surfaces, again.trajectories[name].surfaces, equal_nan=True
        )


def test_gaussians_from_memory_end_ahead_of_the_head(shown):
    assert shown.trajectories["deepccg"].accuracy[-1] > shown.trajectories["er"].accuracy[-1]


def test_the_plane_is_bounded():
    images = torch.randint(0, 256, (50, 1, 8, 8), dtype=torch.uint8)
    assert Planar(64)(images).abs().max() <= REACH
