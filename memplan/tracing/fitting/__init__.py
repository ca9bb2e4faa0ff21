"""Training by the loops of libraries: Lightning's and that of transformers."""
