import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """The toys are tiny: waking other threads costs more than it saves."""
    torch.set_num_threads(1)
