"""The public contract suite: does a learner obey ``deepccg.core.Learner``?

Each check trains a learner on a toy stream through the public contract alone, and says in one line
what is violated and how. A check's name is its function's.
"""

from deepccg.testing.suite import check_learner, learner_checks
from deepccg.testing.toy import ContractError

__all__ = ["ContractError", "check_learner", "learner_checks"]
