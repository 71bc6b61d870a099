"""Many runs at once: grids, worker processes, clusters."""

from deepccg.sweep.grid import Grid, load_grid
from deepccg.sweep.job import Job, Outcome, SweepStopped
from deepccg.sweep.run import processors, run_jobs, sweep
from deepccg.sweep.shard import shard_of

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
