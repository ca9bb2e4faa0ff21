"""memplan: plan the memory of a PyTorch step before renting a GPU."""
