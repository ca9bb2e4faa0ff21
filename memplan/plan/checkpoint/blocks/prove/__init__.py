"""Solve, apply, trace again, correct: until a traced plan meets the budget."""
