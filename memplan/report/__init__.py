"""Say it."""
