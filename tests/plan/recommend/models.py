"""A model to recommend for."""

MODEL = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 4096), torch.nn.Linear(4096, 256)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))

def model():
    return torch.nn.Sequential(*[Block() for _ in range(6)])

def batch(batch_size):
    return torch.randn(batch_size, 1024, 256)

def loss(output, batch):
    return output.float().mean()
"""
