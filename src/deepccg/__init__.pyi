# The public names. This is the only list of them: ``__init__.py`` reads it.

from deepccg.core import Batch as Batch
from deepccg.core import Diverged as Diverged
from deepccg.core import InputError as InputError
from deepccg.core import Learner as Learner
from deepccg.core import StepInfo as StepInfo
from deepccg.core import Task as Task
from deepccg.core import TaskRequired as TaskRequired
from deepccg.core import TestSet as TestSet
from deepccg.estimator import CCGClassifier as CCGClassifier
from deepccg.estimator import DeepCCGClassifier as DeepCCGClassifier
from deepccg.estimator import DeepCCGWarning as DeepCCGWarning
from deepccg.estimator.river import RiverClassifier as RiverClassifier
from deepccg.estimator.river_ccg import RiverCCGClassifier as RiverCCGClassifier
from deepccg.evaluation import evaluate as evaluate
from deepccg.experiment import RunConfig as RunConfig
from deepccg.experiment import RunResult as RunResult
from deepccg.experiment import load_run as load_run
from deepccg.experiment import resume as resume
from deepccg.experiment import run as run
from deepccg.loading import load as load
from deepccg.methods import ER as ER
from deepccg.methods import METHODS as METHODS
from deepccg.methods import SGD as SGD
from deepccg.methods import DeepCCG as DeepCCG
from deepccg.methods import NetworkLearner as NetworkLearner
from deepccg.networks import MLP as MLP
from deepccg.networks import PretrainedEncoder as PretrainedEncoder
from deepccg.networks import SlimResNet18 as SlimResNet18
from deepccg.streams import Cursor as Cursor
from deepccg.streams import Dataset as Dataset
from deepccg.streams import Stream as Stream
from deepccg.streams import disjoint as disjoint
from deepccg.streams import from_arrays as from_arrays
from deepccg.streams import load_dataset as load_dataset
from deepccg.streams import make_test_set as make_test_set
from deepccg.streams import shifting_window as shifting_window

__version__: str
