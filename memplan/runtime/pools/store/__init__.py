"""Items of tensors in memory, compressed, and on disk beyond a limit."""
