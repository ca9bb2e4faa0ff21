"""Packages of compiled CUDA kernels: where they cannot be imported, what to write instead for the same memory."""

_FLASH = (
    "flash-attn cannot be imported here: call torch's scaled_dot_product_attention (in transformers, "
    "attn_implementation='sdpa') and give --attention flash, which is the same kernel with the same memory"
)
_XFORMERS = (
    "xformers cannot be imported here: call torch's scaled_dot_product_attention and give --attention efficient, "
    "which is the same kernel with the same memory"
)
_PLAIN_PATH = "its kernels are compiled for CUDA: let the model take its path in plain PyTorch, which takes more memory"

HINTS = {
    "apex": "apex has to be built with CUDA: torch.nn.LayerNorm and torch.optim.AdamW(fused=True) take the same memory",
    "causal_conv1d": _PLAIN_PATH,
    "flash_attn": _FLASH,
    "flash_attn_interface": _FLASH,
    "mamba_ssm": _PLAIN_PATH,
    "transformer_engine": "it has to be built with CUDA: use torch.nn modules and --precision bf16-mixed",
    "xformers": _XFORMERS,
}
"""Top-level module → what helps."""

PHRASES = {
    "Ninja is required to load C++ extensions": _PLAIN_PATH,
    "FlashAttention2 has been toggled on": _FLASH,
    "FlashAttention3 has been toggled on": _FLASH,
}
"""Words by which transformers says that such a package is missing (modeling_utils.py), or torch that kernels of the
program's own cannot be compiled (utils/cpp_extension.py) → what helps."""
