"""Memory histories: reads what a GPU wrote down, records what memplan predicts, compares and tells."""
