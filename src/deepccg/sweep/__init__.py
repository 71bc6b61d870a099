"""Many runs at once: grids, worker processes, clusters."""

from deepccg.sweep.grid import Grid, load_grid, shard_of
from deepccg.sweep.job import Job, Outcome, SweepStopped
from deepccg.sweep.scheduler import run_jobs, sweep

__all__ = ["Grid", "Job", "Outcome", "SweepStopped", "load_grid", "run_jobs", "shard_of", "sweep"]
