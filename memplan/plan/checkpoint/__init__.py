"""Where to checkpoint: block by block for eager models, op by op for compiled ones and for instances from files."""
