"""A target file for tests that need any: four equal blocks, so that there is something to checkpoint and to reuse."""

NET = """
import torch
from torch import nn


def model():
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)))


def batch(batch_size):
    return torch.randn(batch_size, 64)


def loss(output, batch):
    return output.square().mean()
"""
