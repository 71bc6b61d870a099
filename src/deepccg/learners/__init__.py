"""What methods share: the base of every learner on a network, heads, losses, masks, state."""
