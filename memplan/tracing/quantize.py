"""``--quantize``: linear layers as bitsandbytes holds them, put in place as transformers does when it loads a model.

Nothing of their memory is said here: the layers are bitsandbytes' own, their code runs (``trace.bitsandbytes``).
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import nn

from memplan.errors import UsageError
from memplan.job.adapters import Quantize
from memplan.tracing.adapters import EXTRA, required

INT8_THRESHOLD = 6.0
"""transformers, utils/quantization_config.py, BitsAndBytesConfig: llm_int8_threshold."""
_FLAGS = {"nf4": "is_loaded_in_4bit", "nf4-double": "is_loaded_in_4bit", "int8": "is_loaded_in_8bit"}
"""What transformers sets on a model (quantizers/quantizer_bnb_4bit.py, _8bit.py), and peft asks for."""


def quantize(model: nn.Module, how: Quantize, *, compute_dtype: torch.dtype, frozen_only: bool) -> int:
    """Replace linear layers by quantised ones and move the model to the device.

    Args:
        model: The model; changed in place.
        how: ``nf4``, ``nf4-double`` or ``int8``.
        compute_dtype: What 4-bit weights are turned into in forward and backward.
        frozen_only: Leave layers that are trained as they are.

    Returns:
        How many layers were replaced.

    Raises:
        UsageError: bitsandbytes is not installed, or there is no such layer.
    """
    library = required("bitsandbytes", "--quantize", EXTRA)
    found = [
        (name, layer)
        for name, layer in _linear_layers(model, _kept(model))
        if not (frozen_only and layer.weight.requires_grad)
    ]
    if not found:
        raise UsageError(
            "there is no frozen linear layer to quantise" if frozen_only else "there is no linear layer to quantise",
            where=f"--quantize {how}",
            hint="quantised weights cannot be trained: add --lora, or use --mode inference" if frozen_only else None,
        )
    for name, layer in found:
        model.set_submodule(name, _quantised(library, layer, how, compute_dtype))
    setattr(model, _FLAGS[how], True)
    # bitsandbytes quantises on the way to the device; adapters of peft look at the quantised weights.
    model.to("cuda")
    return len(found)


def _quantised(library: Any, layer: nn.Module, how: Quantize, compute_dtype: torch.dtype) -> nn.Module:
    weight: torch.Tensor = layer.weight if isinstance(layer, nn.Linear) else layer.weight.T  # type: ignore[assignment]
    shape = (weight.shape[1], weight.shape[0], layer.bias is not None)
    if how == "int8":
        made = library.nn.Linear8bitLt(*shape, has_fp16_weights=False, threshold=INT8_THRESHOLD)
    else:
        double = how == "nf4-double"
        made = library.nn.Linear4bit(*shape, compute_dtype, compress_statistics=double, quant_type="nf4")
    made.weight.data = weight.data
    made.bias = layer.bias
    quantised: nn.Module = made.requires_grad_(requires_grad=False)
    return quantised


def _linear_layers(model: nn.Module, kept: Collection[str]) -> Iterator[tuple[str, nn.Module]]:
    """Layers that transformers replaces (integrations/bitsandbytes.py): exactly Linear, and GPT-2's Conv1D."""
    shared = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    for name, module in model.named_modules():
        is_linear = type(module) is nn.Linear or type(module).__name__ == "Conv1D"
        if is_linear and shared[id(module.weight)] == 1 and not _matches(name, kept):
            yield name, module


def _kept(model: nn.Module) -> frozenset[str]:
    """Names that are left alone: the output head, what a transformers model keeps in fp32, and its last module.

    transformers, quantizers/base.py, get_keys_to_not_convert and get_modules_to_not_convert; tied weights, which are
    left alone too, are found by themselves.
    """
    names = {"lm_head", *(getattr(model, "_keep_in_fp32_modules", None) or ())}
    get_head = getattr(model, "get_output_embeddings", None)
    if get_head is not None:
        head, last = get_head(), [name for name, _ in model.named_parameters()][-1]
        names |= {name for name, module in model.named_modules() if module is head}
        # A last layer with a bias is quantised after all: its name ends in that.
        names.add(last.removesuffix(".weight"))
    return frozenset(names)


def _matches(name: str, kept: Collection[str]) -> bool:
    return any(name == key or name.startswith(f"{key}.") or name.endswith(f".{key}") for key in kept)
