"""The public contract suite: does a learner keep every promise of ``deepccg.core.Learner``?

Each check drives a learner through a toy stream, by the public contract alone, and says in one
line which promise was broken and how. A check's name is its function's.
"""

from deepccg.testing.suite import check_learner, learner_checks
from deepccg.testing.toy import ContractError

__all__ = ["ContractError", "check_learner", "learner_checks"]
