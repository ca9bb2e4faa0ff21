"""Small models of many kinds: target files, fields of their jobs, and what their searches leave alone."""

from typing import Any

from memplan.job.parallel import Parallel

_KEEP = ("offload", "loss", "precision", "optimizer", "lora", "quantize")
_OFFLOADED = ("loss", "precision", "optimizer", "lora", "quantize")
_BEGIN = "import torch\nfrom torch import nn\n"
_IMAGES = "def batch(batch_size):\n    return torch.randn(batch_size, 3, 32, 32)\n"
_MEAN = "def loss(output, batch):\n    return output.float().mean()\n"

_MLP = f"""{_BEGIN}
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(128, 1024), nn.Linear(1024, 128)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))
def model():
    return nn.Sequential(*[Block() for _ in range(4)])
def batch(batch_size):
    return torch.randn(batch_size, 512, 128)
{_MEAN}"""
_WIDE = f"""{_BEGIN}
def model():
    return nn.Sequential(nn.Linear(2048, 8192), nn.ReLU(), nn.Linear(8192, 2048))
def batch(batch_size):
    return torch.randn(batch_size, 2048)
{_MEAN}"""
_ENCODER = f"""{_BEGIN}
def model():
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, 3)
def batch(batch_size):
    return torch.randn(batch_size, 256, 128)
{_MEAN}"""
_CONV = f"""{_BEGIN}
def model():
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128 * 256, 10))
{_IMAGES}{_MEAN}"""
_NORMED = f"""{_BEGIN}
def model():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
{_IMAGES}{_MEAN}"""
_BATCH_NORM_1D = f"""{_BEGIN}
def model():
    return nn.Sequential(nn.Linear(256, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, 256))
def batch(batch_size):
    return torch.randn(batch_size, 256)
{_MEAN}"""
_LANGUAGE = f"""{_BEGIN}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(8192, 128)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True) for _ in range(2))
        self.head = nn.Linear(128, 8192)
    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
def model():
    return Model()
def batch(batch_size):
    return torch.randint(8192, (batch_size, 128))
def loss(output, batch):
    return nn.functional.cross_entropy(output.flatten(0, 1), batch.flatten())
"""
_CONTRASTIVE = f"""{_BEGIN}
def model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
def batch(batch_size):
    return torch.randn(batch_size, 64)
def loss(output, batch):
    return nn.functional.cross_entropy(output @ output.T, torch.arange(len(output), device=output.device))
"""
_RECURRENT = f"""{_BEGIN}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 256, 2, batch_first=True), nn.Linear(256, 64)
    def forward(self, x):
        return self.head(self.lstm(x)[0])
def model():
    return Model()
def batch(batch_size):
    return torch.randn(batch_size, 128, 64)
{_MEAN}"""
_SCALED_BY_BATCH = f"""{_BEGIN}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Linear(512, 512), nn.Linear(512, 512)
    def forward(self, x):
        # What does not depend on the samples is computed once for each micro-batch.
        positions = self.table(torch.ones(2048, 512, device=x.device)).mean(0)
        return self.out(x + positions)
def model():
    return Model()
def batch(batch_size):
    return torch.randn(batch_size, 64, 512)
{_MEAN}"""
_LLAMA = f"""{_BEGIN}
from transformers import LlamaConfig, LlamaForCausalLM
def model():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=8))
def batch(batch_size):
    ids = torch.randint(512, (batch_size, 256))
    return {{"input_ids": ids, "labels": ids}}
"""
_PERCEPTRON = f"""{_BEGIN}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(512, 2048), nn.Linear(2048, 512)
    def run(self, x):
        return self.down(torch.relu(self.up(x)))
    def forward(self, x):
        FORWARD
def model():
    return Model()
def batch(batch_size):
    return torch.randn(batch_size, 256, 512)
{_MEAN}"""
_ODD = {
    "in-fours": "return self.run(x.view(4, -1, 256, 512))",
    "in-pairs": "x = self.run(x); return x[::2] - x[1::2]",
    "padded": "return self.run(nn.functional.pad(x, (0, 0, 0, 0, 0, -len(x) % 8)))",
    "chunked-large": "return torch.cat([self.run(each) for each in x.chunk(8)]) if len(x) >= 8 else self.run(x)",
    "quick-small": "return self.run(self.run(self.run(x))) if len(x) > 3 else self.run(x)",
}
"""What a program may do that looks at the size of its micro-batch."""
_OWN_CHECKPOINTS = "from torch.utils.checkpoint import checkpoint\n" + _MLP.replace(
    "nn.functional.gelu(self.up(x))",
    "checkpoint(lambda each: nn.functional.gelu(self.up(each)), x, use_reentrant=False)",
)
_NODES = ("split", "offload", "precision", "optimizer", "lora", "quantize")
_RANKS = ("split", "loss", "offload", "precision", "optimizer", "optimizer-step", "attention", "lora", "quantize")


def _job(
    name: str,
    text: str,
    batch: int,
    keep: tuple[str, ...] = _KEEP,
    allow: tuple[str, ...] = (),
    *,
    gpus: int = 1,
    **fields: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    options = {"batch_size": batch, **fields}
    if gpus > 1:
        options["parallel"] = Parallel(data="fsdp2", shards=gpus)
    return {"name": name, "text": text, "options": options}, {"keep": keep, "allow": allow, "gpus": gpus}


MODELS = (
    _job("mlp", _MLP, 8, _OFFLOADED),
    _job("mlp-full", _MLP, 4, _OFFLOADED, checkpoint="full"),
    _job("mlp-accum", _MLP, 2, grad_accum=4),
    _job("mlp-free", _MLP, 2, ("offload", "loss", "lora", "quantize"), ("precision", "optimizer")),
    _job("wide", _WIDE, 16),
    _job("encoder", _ENCODER, 4, _OFFLOADED),
    _job("conv", _CONV, 8),
    _job("normed", _NORMED, 8),
    _job("norm-1d", _BATCH_NORM_1D, 4, allow=("split",)),
    _job("language", _LANGUAGE, 4, ("precision", "optimizer", "lora", "quantize", "offload")),
    _job("contrastive", _CONTRASTIVE, 1024),
    _job("recurrent", _RECURRENT, 4),
    _job("positions", _SCALED_BY_BATCH, 8),
    _job("sgd", _CONV, 4, _OFFLOADED, optimizer="sgd"),
    *(_job(name, _PERCEPTRON.replace("FORWARD", body), 12) for name, body in _ODD.items()),
    _job("recomputing", _OWN_CHECKPOINTS, 4, _OFFLOADED),
    _job("mlp-accum-16", _MLP, 1, _OFFLOADED, grad_accum=16),
    _job("mlp-clipped", _MLP, 4, _OFFLOADED, clip_grad_norm=1.0),
    _job("mlp-fp16", _MLP, 4, _OFFLOADED, precision="fp16-mixed"),
    _job("mlp-bf16", _MLP, 4, _OFFLOADED, precision="bf16"),
    _job("conv-split", _CONV, 4, _OFFLOADED, allow=("split",)),
    _job("language-bf16", _LANGUAGE, 2, ("lora", "quantize"), ("optimizer",), precision="bf16"),
    _job("llama", _LLAMA, 2, ("precision", "lora", "quantize"), ("optimizer",)),
    _job("llama-free", _LLAMA, 1, ("lora", "quantize"), ("precision", "optimizer")),
    _job("llama-adapted", _LLAMA, 4, ("split", "precision", "optimizer"), ("lora", "quantize")),
    _job("mlp-ranks", _MLP, 4, _RANKS, gpus=4),
    _job("llama-ranks", _LLAMA, 4, _RANKS, gpus=8),
    _job("llama-nodes", _LLAMA, 2, _NODES, gpus=16, precision="bf16"),
)
"""Fields of each job, and of its search."""
