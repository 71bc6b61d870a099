"""What each method is called, its colour, and its row in the paper's tables: one entry each."""

from collections.abc import Mapping
from typing import NamedTuple


class MethodEntry(NamedTuple):
    """How one method appears in tables and figures."""

    title: str  # what readers call it
    slot: int  # its colour: an index into the palettes, the same in every report
    paper: str | None = None  # the name of its row in the paper's tables


_GREY, _INK = 6, 7  # the other slots are hues

# In the order of a table's rows.
METHOD_ENTRIES: Mapping[str, MethodEntry] = {
    "ccg": MethodEntry("CCG", 5),
    "deepccg": MethodEntry("DeepCCG", 0, "DeepCCG"),
    "deepccg-reservoir": MethodEntry("DeepCCG-reservoir", 8, "DeepCCG-reservoir"),
    "deepccg-standard-head": MethodEntry("DeepCCG-standardHead", 9, "DeepCCG-standardHead"),
    "er": MethodEntry("ER", 1, "ER-reservoir"),
    "er-ace": MethodEntry("ER-ACE", 2, "ER-ACE"),
    "derpp": MethodEntry("DER++", 3, "DER++"),
    "esmer": MethodEntry("ESMER", 10, "ESMER"),
    "icarl": MethodEntry("iCaRL", 11, "iCaRL"),
    "agem": MethodEntry("A-GEM", 4, "A-GEM"),
    "gss": MethodEntry("GSS", 12, "GSS"),
    # docs/papers.md: to be quoted as a reconstruction
    "entropy-ss": MethodEntry("EntropySS (reconstruction)", 13, "EntropySS"),
    "ewc": MethodEntry("EWC", 14, "EWC"),
    "packnet": MethodEntry("PackNet", 15, "PackNet"),
    "protocl": MethodEntry("ProtoCL", 16),
    "infogs": MethodEntry("InfoGS", 17),
    "mir": MethodEntry("MIR", 18),
    "pcr": MethodEntry("PCR", 19),
    "scr": MethodEntry("SCR", 20),
    "gdumb": MethodEntry("GDumb (offline learner)", 21),
    "slda": MethodEntry("SLDA", 22),
    "randumb": MethodEntry("RanDumb", 23),
    "ncm": MethodEntry("NCM", 24),
    "sgd": MethodEntry("SGD", _GREY, "SGD"),
    "multi-task": MethodEntry("Multi-Task", _INK, "Multi-Task"),
}
