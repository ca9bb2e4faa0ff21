"""A model whose weights are large and whose activations are small, so that what DeepSpeed does decides the peak."""

import torch

WIDTH, LAYERS, WORDS = 256, 3, 500


class Model(torch.nn.Module):
    """Two matrices per layer, some of whose sizes divide by no number of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH + 1), torch.nn.Linear(4 * WIDTH + 1, WIDTH))
            for _ in range(LAYERS)
        )
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores of the next word."""
        state = self.words(words)
        for layer in self.layers:
            state = state + layer(state)
        return self.head(state)


def model() -> torch.nn.Module:
    """The model."""
    return Model()


def batch(batch_size: int) -> torch.Tensor:
    """Two words each."""
    return torch.zeros(batch_size, 2, dtype=torch.long)


def loss(output: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Cross entropy."""
    return torch.nn.functional.cross_entropy(output.flatten(0, 1), words.flatten())
