"""What the report calls the parts of the peak."""

LABELS = {
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer_state": "optimizer state",
    "activation": "activations",
    "input": "inputs",
    "buffer": "buffers",
    "temporary": "temporaries",
    "workspace": "workspaces",
    "fragmentation": "allocator slack",
    "context": "context",
}
"""Key of an estimate's breakdown → words."""
LABEL_CELLS = 15
"""Width of the longest."""
