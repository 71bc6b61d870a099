"""One file per method; ``METHODS`` is the one table of names."""

from deepccg.core import Learner
from deepccg.learners.base import NetworkLearner
from deepccg.methods.agem import AGEM
from deepccg.methods.ccg import CCG
from deepccg.methods.ccg_controls import NCM, SLDA, RanDumb
from deepccg.methods.deepccg import DeepCCG
from deepccg.methods.deepccg_ablations import DeepCCGReservoir, DeepCCGStandardHead
from deepccg.methods.derpp import DERPP
from deepccg.methods.entropy_ss import EntropySS
from deepccg.methods.er import ER
from deepccg.methods.er_ace import ERACE
from deepccg.methods.esmer import ESMER
from deepccg.methods.ewc import EWC
from deepccg.methods.gdumb import GDumb
from deepccg.methods.gss import GSS
from deepccg.methods.icarl import ICaRL
from deepccg.methods.infogs import InfoGS
from deepccg.methods.mir import MIR
from deepccg.methods.packnet import PackNet
from deepccg.methods.pcr import PCR
from deepccg.methods.protocl import ProtoCL
from deepccg.methods.scr import SCR
from deepccg.methods.sgd import SGD, MultiTask

# Every method by the name that `deepccg run --method` takes, in the order of the paper's tables.
METHODS: dict[str, type[Learner]] = {
    "sgd": SGD,
    "multi-task": MultiTask,
    "ewc": EWC,
    "packnet": PackNet,
    "er": ER,
    "agem": AGEM,
    "entropy-ss": EntropySS,
    "gss": GSS,
    "er-ace": ERACE,
    "derpp": DERPP,
    "esmer": ESMER,
    "icarl": ICaRL,
    "ccg": CCG,
    "ncm": NCM,
    "slda": SLDA,
    "randumb": RanDumb,
    "deepccg": DeepCCG,
    "deepccg-reservoir": DeepCCGReservoir,
    "deepccg-standard-head": DeepCCGStandardHead,
    "protocl": ProtoCL,
    "infogs": InfoGS,
    "mir": MIR,
    "pcr": PCR,
    "scr": SCR,
    "gdumb": GDumb,
}

__all__ = [
    "AGEM",
    "CCG",
    "DERPP",
    "ER",
    "ERACE",
    "ESMER",
    "EWC",
    "GSS",
    "METHODS",
    "MIR",
    "NCM",
    "PCR",
    "SCR",
    "SGD",
    "SLDA",
    "DeepCCG",
    "DeepCCGReservoir",
    "DeepCCGStandardHead",
    "EntropySS",
    "GDumb",
    "ICaRL",
    "InfoGS",
    "MultiTask",
    "NetworkLearner",
    "PackNet",
    "ProtoCL",
    "RanDumb",
]  # fmt: skip
