"""Op by op: which values to compute again, and in which order to compute everything."""
