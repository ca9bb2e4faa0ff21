"""Leaks: growth that does not end, told apart from warm-up and noise; where it is born, and by whom it is kept."""
