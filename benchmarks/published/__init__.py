"""Published peaks of real runs, each with the program that reproduces it: one module per source."""
