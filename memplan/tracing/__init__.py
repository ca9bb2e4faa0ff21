"""Record a step on fake tensors."""
