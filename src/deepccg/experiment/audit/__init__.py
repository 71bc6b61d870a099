"""The auditor of a run: whether the protocol was kept, and what was held of the past."""
