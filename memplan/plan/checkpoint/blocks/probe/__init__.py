"""From traces to the block-level problem: which options blocks have, what each keeps and takes, what passes between."""
