"""Sparse tensors: what PyTorch's sparse kernels do, played on the parts of fake sparse tensors."""
