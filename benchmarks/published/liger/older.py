"""What the scripts relied on in transformers 4, where transformers 5 has it otherwise.

``LlamaRotaryEmbedding`` and ``Llama4TextRotaryEmbedding`` took ``device=`` and made their angles by a matrix product,
whose cuBLAS workspace stays; ``apply_rotary_pos_emb`` took ``position_ids`` and ignored them
(src/transformers/models/llama/modeling_llama.py and llama4/modeling_llama4.py, v4.44 to v4.57).
"""

from typing import Any

import torch
from transformers.models.llama import modeling_llama
from transformers.models.llama4 import modeling_llama4


def as_of_transformers_4() -> tuple[tuple[Any, str, Any], ...]:
    """Owner, attribute and value of what to set for the length of a run; nothing that transformers 4 has itself."""
    llama, llama4 = modeling_llama.LlamaRotaryEmbedding, modeling_llama4.Llama4TextRotaryEmbedding
    if "position_ids" in modeling_llama.apply_rotary_pos_emb.__code__.co_varnames:
        return ()
    return (
        (modeling_llama, "apply_rotary_pos_emb", _taking_positions(modeling_llama.apply_rotary_pos_emb)),
        (llama, "__init__", _taking_device(llama.__init__)),
        (llama, "forward", _cosine_and_sine),
        (llama4, "__init__", _taking_device(llama4.__init__)),
        (llama4, "forward", _polar),
    )


def _taking_positions(rotate: Any) -> Any:
    def rotate_at(*vectors: Any) -> Any:
        return rotate(*vectors[:4])

    return rotate_at


def _taking_device(make: Any) -> Any:
    def make_there(self: torch.nn.Module, *args: Any, device: Any = None, **options: Any) -> None:
        make(self, *args, **options)
        self.to(device)

    return make_there


def _angles(self: Any, position_ids: torch.Tensor) -> torch.Tensor:
    frequencies = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1)
    return (frequencies @ position_ids[:, None, :].float()).transpose(1, 2)


def _cosine_and_sine(self: Any, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    angles = _angles(self, position_ids)
    both = torch.cat((angles, angles), dim=-1)
    return both.cos().to(x.dtype), both.sin().to(x.dtype)


def _polar(self: Any, x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    del x
    angles = _angles(self, position_ids)
    return torch.polar(torch.ones_like(angles), angles) * self.attention_scaling
