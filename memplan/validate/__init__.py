"""Runs the step for real on the device at hand and puts what was measured beside what was predicted."""
