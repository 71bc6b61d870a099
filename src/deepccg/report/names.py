"""What readers call things that have short names on the command line."""

import hashlib
import json
from collections.abc import Iterable, Mapping

METHODS: Mapping[str, str] = {
    "deepccg": "DeepCCG",
    "deepccg-reservoir": "DeepCCG-reservoir",
    "deepccg-standard-head": "DeepCCG-standardHead",
    "er": "ER",
    "er-ace": "ER-ACE",
    "derpp": "DER++",
    "esmer": "ESMER",
    "icarl": "iCaRL",
    "agem": "A-GEM",
    "gss": "GSS",
    "entropy-ss": "EntropySS (reconstruction)",  # docs/papers.md: to be quoted as such
    "ewc": "EWC",
    "packnet": "PackNet",
    "protocl": "ProtoCL",
    "infogs": "InfoGS",
    "sgd": "SGD",
    "multi-task": "Multi-Task",
}
DATASETS: Mapping[str, str] = {
    "digits": "Digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "mini-imagenet": "MiniImageNet",
}


def method_name(method: str) -> str:
    """``er-ace`` is ER-ACE; a class of the user's own is itself, without its module.

    >>> method_name("er-ace"), method_name("my.module:Nearest")
    ('ER-ACE', 'Nearest')
    """
    return METHODS.get(method) or method.rpartition(":")[2] or method


def dataset_name(dataset: str) -> str:
    """``cifar10`` is CIFAR-10; a folder or a name of the hub is itself."""
    return DATASETS.get(dataset, dataset)


def stream_name(stream: str) -> str:
    """``shifting-window`` without its hyphen."""
    return stream.replace("-", " ")


def slug(text: str) -> str:
    """For links and files: letters, digits and single hyphens.

    >>> slug("a.b:C <script>")
    'a-b-c-script'
    """
    plain = "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower())
    return "-".join(plain.split())[:120]


def digest(value: object) -> str:
    """A short hash of plain values."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def seeds_text(seeds: Iterable[int]) -> str:
    """As ``--seeds`` takes them.

    >>> seeds_text([0, 1, 2, 5]), seeds_text([3])
    ('0-2,5', '3')
    """
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and runs[-1][-1] == seed - 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ",".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
