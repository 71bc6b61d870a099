"""Many runs at once: grids, worker processes, clusters."""

from deepccg.sweep.grid import Grid, load_grid, shard_of
from deepccg.sweep.job import Job, Outcome, SweepStopped
from deepccg.sweep.scheduler import processors, run_jobs, sweep

__all__ = [
    "Grid",
    "Job",
    "Outcome",
    "SweepStopped",
    "load_grid",
    "processors",
    "run_jobs",
    "shard_of",
    "sweep",
]
