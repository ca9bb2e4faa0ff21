"""A target and the limit of tests of advice."""

LIMIT = 1 << 30


TARGET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(512, 2048)
        self.down = torch.nn.Linear(2048, 512)
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, 512)

def loss(output, batch):
    return output.square().mean()
"""
