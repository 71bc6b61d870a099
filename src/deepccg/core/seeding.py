"""Randomness is an argument: every owner derives its own generator from the run's seed."""

import hashlib

import torch


def derive_seed(seed: int, *purpose: str) -> int:
    """Derive the seed of one purpose, so that one owner's draws never shift another's.

    >>> derive_seed(0, "network") == derive_seed(0, "network")
    True
    >>> derive_seed(0, "network") == derive_seed(0, "stream")
    False
    """
    text = "/".join((str(int(seed)), *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


def make_generator(seed: int, *purpose: str) -> torch.Generator:
    """Return a private CPU generator for one purpose."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))
