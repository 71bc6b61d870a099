"""Many runs at once, or one in parts: grids, worker processes, clusters."""

from deepccg.sweep.grid import Grid, load_grid, shard_of
from deepccg.sweep.job import Job, Outcome, SweepStopped
from deepccg.sweep.scheduler import run_jobs, sweep
from deepccg.sweep.shards import ShardFailed, fit

__all__ = [
    "Grid",
    "Job",
    "Outcome",
    "ShardFailed",
    "SweepStopped",
    "fit",
    "load_grid",
    "run_jobs",
    "shard_of",
    "sweep",
]
