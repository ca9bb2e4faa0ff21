"""The block-level problem: one option for each block, its solvers, and a check that shares no code with them."""
