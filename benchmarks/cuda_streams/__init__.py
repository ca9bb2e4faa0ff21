"""Programs whose CUDA allocation streams were published as memory snapshots, written anew op for op."""
