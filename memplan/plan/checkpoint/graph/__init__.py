"""Checkpoint plans of graphs from files: rematerialisation instances as the literature exchanges them."""
