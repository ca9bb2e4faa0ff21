"""Tests of memplan."""

import os

# Threads of OpenMP that wait for work spin by default, which takes the processor from the other worker of a test run:
# five times the time of a test that trains for real. It is read when torch is imported, so it is said before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
