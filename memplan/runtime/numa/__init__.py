"""NUMA: what a machine looks like, where ranks, workers and pinned memory belong, and how to put them there."""
