"""The block-level problem: its records, and the formula of memory and time that probes, solvers and proofs share."""
