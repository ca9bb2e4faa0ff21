"""Recommendations for every job of a project on every GPU, on this machine or on a cluster.

jobs and GPUs ──► tasks ──► workers, one search in a process of its own each ──► rows, in the order of the file
"""
