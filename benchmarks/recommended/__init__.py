"""Jobs as people type them, and the way of each winner: emitted, loaded by its framework, read back, traced again."""
