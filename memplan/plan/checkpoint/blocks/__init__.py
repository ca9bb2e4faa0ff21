"""Checkpoint plans of a model's blocks: what is asked, probed, solved, proved and answered."""
