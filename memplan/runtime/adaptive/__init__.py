"""Batches that adapt: the largest that fits, steps that survive running out of memory, sizes that follow a target."""
