"""What a target does not say of its step, worked out from its model: its inputs, and what its loss is."""
