"""One thread per test process, and how hard Hypothesis searches."""

import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)

# A busy machine is slow, not wrong: no deadlines, no health check of the clock.
settings.register_profile(
    "default",
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# pytest --hypothesis-profile=thorough
settings.register_profile(
    "thorough", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")
