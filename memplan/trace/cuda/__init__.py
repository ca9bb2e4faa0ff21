"""CUDA semantics on fake CPU tensors: what CUDA would run where CPU takes another way."""
