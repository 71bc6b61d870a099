"""Splitting a sweep among machines that know nothing of one another."""

import hashlib
import re
from collections.abc import Sequence

from deepccg.core import InputError
from deepccg.sweep.job import Job


def shard_of(jobs: Sequence[Job], part: str) -> list[Job]:
    """Part ``I/N`` of the jobs, the first being ``1/N``; the parts differ in size by at most one.

    Who gets which job depends on the jobs' names alone. They are shuffled by a hash: dealt out in
    order, one part might get all runs of the slowest method.
    """
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(f"--shard {part}: write for example 2/10, for the second of ten parts")
    shuffled = sorted(jobs, key=lambda job: hashlib.blake2b(job.name.encode()).digest())
    own = {job.name for job in shuffled[int(found[1]) - 1 :: int(found[2])]}
    return [job for job in jobs if job.name in own]
