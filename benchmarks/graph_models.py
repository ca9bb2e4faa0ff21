"""Twenty small models for ``benchmarks/graph.py``: torchvision's and transformers' with tiny settings, and own ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torchvision
import transformers
from torch import nn
from torch.nn import functional

from memplan.job.source import ModelSource

CLASSES, WORDS, LENGTH = 10, 200, 16
Step = Callable[[Any, Any], torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallModel:
    """A model with its batches and its loss."""

    build: Callable[[], nn.Module]
    """Makes it."""
    batch: Callable[[int], Any]
    """Makes a batch of so many samples."""
    loss: Step
    """From output and batch to a number."""

    def source(self) -> ModelSource:
        """Return it as memplan takes it, with momentum in the optimizer."""
        return ModelSource(model=self.build, batch=lambda size, _: self.batch(size), loss=self.loss, optimizer=momentum)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    """SGD with momentum, one parameter after the other: what eager PyTorch does on the CPU."""
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, foreach=False)


def _images(side: int) -> Callable[[int], torch.Tensor]:
    return lambda size: torch.randn(size, 3, side, side)


def _vectors(size: int) -> torch.Tensor:
    return torch.randn(size, 32)


def _sequences(size: int) -> torch.Tensor:
    return torch.randn(size, LENGTH, 32)


def _words(size: int) -> torch.Tensor:
    return torch.randint(WORDS, (size, LENGTH))


def _mean_square(output: torch.Tensor, _: Any) -> torch.Tensor:
    return output.square().mean()


def _labelled(size: int) -> dict[str, torch.Tensor]:
    words = _words(size)
    return {"input_ids": words, "labels": words}


def _own_loss(output: Any, _: Any) -> torch.Tensor:
    return output.loss


def _next_word(output: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output[:, :-1].flatten(0, 1), words[:, 1:].flatten())


class Residual(nn.Module):
    """Norms, products, dropout and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(32), nn.Dropout(0.1)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what came in and what was made of it."""
        return x + self.drop(self.down(functional.gelu(self.up(self.norm(x)))))


class Recurrent(nn.Module):
    """Words through a GRU to words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS)
        self.recurrent = nn.GRU(32, 32, num_layers=2, batch_first=True)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return a score for each word at each place."""
        return self.head(self.recurrent(self.embed(words))[0])


class Autoencoder(nn.Module):
    """Strided convolutions there, transposed ones back."""

    def __init__(self) -> None:
        super().__init__()
        self.there = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.back = nn.Sequential(nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images of the same size."""
        return self.back(self.there(images))


class Unet(nn.Module):
    """Two sizes, with a way across."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.last = nn.Conv2d(16, 8, 1), nn.Conv2d(16, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images of the same size."""
        wide = torch.relu(self.norm(self.wide(images)))
        deep = torch.relu(self.deep(functional.max_pool2d(wide, 2)))
        up = functional.interpolate(self.up(deep), scale_factor=2)
        return self.last(torch.cat([wide, up], 1))


class Mixer(nn.Module):
    """Products over places and over channels in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.channels = nn.Linear(LENGTH, LENGTH), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a sequence of the same shape."""
        x = x + functional.gelu(self.places(x.transpose(1, 2))).transpose(1, 2)
        return x + functional.gelu(self.channels(x))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
GPT2 = {"vocab_size": WORDS, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
T5 = {"vocab_size": WORDS, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}


def _hub(model: str, config: str, **settings: Any) -> SmallModel:
    """A model of transformers that computes its own loss; keys and values are not kept."""

    def build() -> nn.Module:
        made = getattr(transformers, config)(**{"vocab_size": WORDS, **settings})
        return getattr(transformers, model)(made)

    return SmallModel(build=build, batch=_labelled, loss=_own_loss)


def _vision(name: str, side: int = 64, **settings: Any) -> SmallModel:
    def build() -> nn.Module:
        return getattr(torchvision.models, name)(num_classes=CLASSES, **settings)

    return SmallModel(build=build, batch=_images(side), loss=_mean_square)


def _small_vision_transformer() -> nn.Module:
    return torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=CLASSES)


def _small_swin() -> nn.Module:
    return torchvision.models.SwinTransformer([4, 4], 16, [2, 2], [2, 2], [4, 4], num_classes=CLASSES)


MODELS = {
    "ResNet-18": _vision("resnet18"),
    "MobileNet v3": _vision("mobilenet_v3_small"),
    "DenseNet-121": _vision("densenet121"),
    "SqueezeNet": _vision("squeezenet1_1"),
    "ShuffleNet v2": _vision("shufflenet_v2_x0_5"),
    "EfficientNet B0": _vision("efficientnet_b0"),
    "vision transformer": SmallModel(build=_small_vision_transformer, batch=_images(32), loss=_mean_square),
    "Swin": SmallModel(build=_small_swin, batch=_images(32), loss=_mean_square),
    "GPT-2": _hub("GPT2LMHeadModel", "GPT2Config", **GPT2),
    "Llama": _hub("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=1, **SIZES),
    "Qwen2": _hub("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=1, **SIZES),
    "BERT": _hub("BertForMaskedLM", "BertConfig", **SIZES),
    "ELECTRA": _hub("ElectraForMaskedLM", "ElectraConfig", embedding_size=32, **SIZES),
    "T5": _hub("T5ForConditionalGeneration", "T5Config", decoder_start_token_id=0, **T5),
    "residual": SmallModel(build=lambda: nn.Sequential(Residual(), Residual()), batch=_vectors, loss=_mean_square),
    "recurrent": SmallModel(build=Recurrent, batch=_words, loss=_next_word),
    "autoencoder": SmallModel(build=Autoencoder, batch=_images(16), loss=_mean_square),
    "U-Net": SmallModel(build=Unet, batch=_images(16), loss=_mean_square),
    "mixer": SmallModel(build=Mixer, batch=_sequences, loss=_mean_square),
    "encoder": SmallModel(build=_encoder, batch=_sequences, loss=_mean_square),
}
"""Name → model."""
