"""Checkpoint plans of compiled steps: AOTAutograd's joint graph as a problem, and a schedule of it."""
