"""What each method is called, its colour, and its row in the paper's tables: one entry each."""

from collections.abc import Mapping
from typing import NamedTuple


class MethodEntry(NamedTuple):
    """How one method appears in tables and figures."""

    title: str  # what readers call it
    slot: int  # its colour: an index into the palettes, the same in every report
    paper: str | None = None  # the name of its row in the paper's tables
    shares_slot: bool = False  # another method comes first in this colour: dashes, markers differ


_GREY, _INK = 6, 7

# In the order of a table's rows.
METHOD_ENTRIES: Mapping[str, MethodEntry] = {
    "ccg": MethodEntry("CCG", 5),
    "deepccg": MethodEntry("DeepCCG", 0, "DeepCCG"),
    "deepccg-reservoir": MethodEntry("DeepCCG-reservoir", 4, "DeepCCG-reservoir", True),
    "deepccg-standard-head": MethodEntry("DeepCCG-standardHead", 3, "DeepCCG-standardHead", True),
    "er": MethodEntry("ER", 1, "ER-reservoir"),
    "er-ace": MethodEntry("ER-ACE", 2, "ER-ACE"),
    "derpp": MethodEntry("DER++", 3, "DER++"),
    "esmer": MethodEntry("ESMER", 1, "ESMER", True),
    "icarl": MethodEntry("iCaRL", 5, "iCaRL", True),
    "agem": MethodEntry("A-GEM", 4, "A-GEM"),
    "gss": MethodEntry("GSS", 2, "GSS", True),
    # docs/papers.md: to be quoted as a reconstruction
    "entropy-ss": MethodEntry("EntropySS (reconstruction)", 5, "EntropySS", True),
    "ewc": MethodEntry("EWC", 3, "EWC", True),
    "packnet": MethodEntry("PackNet", 5, "PackNet", True),
    "protocl": MethodEntry("ProtoCL", _GREY, shares_slot=True),
    "infogs": MethodEntry("InfoGS", 2, shares_slot=True),
    "mir": MethodEntry("MIR", 1, shares_slot=True),
    "pcr": MethodEntry("PCR", 3, shares_slot=True),
    "scr": MethodEntry("SCR", 4, shares_slot=True),
    "gdumb": MethodEntry("GDumb (offline learner)", _INK, shares_slot=True),
    "slda": MethodEntry("SLDA", 5, shares_slot=True),
    "randumb": MethodEntry("RanDumb", 4, shares_slot=True),
    "ncm": MethodEntry("NCM", _GREY, shares_slot=True),
    "sgd": MethodEntry("SGD", _GREY, "SGD"),
    "multi-task": MethodEntry("Multi-Task", _INK, "Multi-Task"),
}
