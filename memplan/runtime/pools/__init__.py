"""Tensors out of memory that is kept: a pool, a ring of pinned buffers, a store that spills to disk."""
