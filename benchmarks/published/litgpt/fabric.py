"""What all of litgpt's scripts begin with: Fabric, the model on the device, and the checkpoint's weights in it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning import Fabric
from lightning.fabric.plugins import BitsandbytesPrecision

from published.litgpt.recipes import Recipe


def make_fabric(recipe: Recipe) -> Any:
    """``setup`` of finetune/lora.py and generate/base.py: bf16-true, or 4-bit layers that compute in bf16."""
    if not recipe.quantize:
        return Fabric(accelerator="cuda", devices=1, precision="bf16-true")
    with _without_triton():
        plugin: Any = BitsandbytesPrecision(recipe.quantize, torch.bfloat16)  # type: ignore[arg-type]
    return Fabric(accelerator="cuda", devices=1, plugins=plugin)


@contextmanager
def _without_triton() -> Iterator[None]:
    """Hide Triton: bitsandbytes 0.42 wants parts of it that are gone, and does without where there is none."""
    former = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "triton"}
    sys.modules["triton"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["triton"]
        sys.modules.update(former)


def load_checkpoint(model: torch.nn.Module, name: str) -> None:
    """``load_checkpoint`` of litgpt/utils.py: a base model's weights, read to the host."""
    from litgpt import GPT

    former = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        state = GPT.from_name(name).state_dict()
    finally:
        torch.set_default_dtype(former)
    # What fine-tuning adds is in no checkpoint.
    model.load_state_dict(state, strict=False)
