"""A fixed number of stored examples, and the rules that decide which."""

from deepccg.memory.policies import (
    balanced_random,
    class_balanced_reservoir,
    class_quotas,
    reservoir_slots,
)
from deepccg.memory.reselect import CandidateIndex, candidates_of
from deepccg.memory.store import MemoryStore

__all__ = [
    "CandidateIndex",
    "MemoryStore",
    "balanced_random",
    "candidates_of",
    "class_balanced_reservoir",
    "class_quotas",
    "reservoir_slots",
]
