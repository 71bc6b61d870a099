"""A fixed number of stored examples, and the rules that decide which."""

from deepccg.memory.buffer import MemoryStore
from deepccg.memory.candidates import NOBODY, CandidateIndex, candidates_of, pool_of, replace
from deepccg.memory.policies import (
    balanced_random,
    class_balanced_reservoir,
    class_quotas,
    herding,
    herding_places,
    offer_to_reservoir,
    quotas_by_arrival,
    rank_within,
    reservoir_slots,
    write_rings,
)

__all__ = [
    "NOBODY",
    "CandidateIndex",
    "MemoryStore",
    "balanced_random",
    "candidates_of",
    "class_balanced_reservoir",
    "class_quotas",
    "herding",
    "herding_places",
    "offer_to_reservoir",
    "pool_of",
    "quotas_by_arrival",
    "rank_within",
    "replace",
    "reservoir_slots",
    "write_rings",
]
