"""``zero_model`` with its layers checkpointed by DeepSpeed, which keeps what they start from in host memory."""

import importlib

import torch

from tests.tracing.sharding import zero_model
from tests.tracing.sharding.zero_model import batch, loss

__all__ = ["batch", "loss", "model"]


class Checkpointed(zero_model.Model):
    """Each layer runs again in backward."""

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores of the next word."""
        checkpoint = importlib.import_module("deepspeed").checkpointing.checkpoint
        state = self.words(words)
        for layer in self.layers:
            state = state + checkpoint(layer, state)
        return self.head(state)


def model() -> torch.nn.Module:
    """The model, in a process that has told DeepSpeed how to checkpoint."""
    deepspeed = importlib.import_module("deepspeed")
    deepspeed.init_distributed()
    deepspeed.checkpointing.configure(None, partition_activations=False, checkpoint_in_cpu=True)
    return Checkpointed()
