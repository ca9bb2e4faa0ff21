"""Small programs drawn from a grammar, each run for real and predicted: the parts of ``differential.py``."""
