"""A fixed number of stored examples, and the rules that decide which."""

from deepccg.memory.buffer import (
    EMBEDDING,
    MemoryStore,
    draw_balanced,
    draw_classes,
    draw_grouped,
    draw_uniform,
    keep_one_per_class,
    offer_to_reservoir,
    rank_within,
    reservoir_slots,
)
from deepccg.memory.policies import herding, herding_places, write_rings
from deepccg.memory.quotas import (
    NO_SLOTS,
    CandidateIndex,
    balanced_random,
    candidates_of,
    class_balanced_reservoir,
    class_quotas,
    pool_of,
    quotas_by_arrival,
    replace,
)

__all__ = [
    "EMBEDDING", "NO_SLOTS", "CandidateIndex", "MemoryStore", "balanced_random", "candidates_of",
    "class_balanced_reservoir", "class_quotas", "draw_balanced", "draw_classes", "draw_grouped",
    "draw_uniform", "herding", "herding_places", "keep_one_per_class", "offer_to_reservoir",
    "pool_of", "quotas_by_arrival", "rank_within", "replace", "reservoir_slots", "write_rings",
]  # fmt: skip
