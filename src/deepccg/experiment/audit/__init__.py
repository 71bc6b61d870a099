"""The audit of a run: whether it kept the protocol, and how much of the past it stored."""
