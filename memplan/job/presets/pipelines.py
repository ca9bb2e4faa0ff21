"""Diffusers' pipelines on the hub: which configurations lie in the folders of each.

Denoisers are presets. The other parts are as their ``config.json`` has them (stable-diffusion-v1-5,
stable-diffusion-2-1 and stable-diffusion-xl-base-1.0, read 2026-11-23).
"""

import re
from collections.abc import Mapping
from typing import Any

from memplan.job.presets.catalog import find_preset

_AUTOENCODER: Mapping[str, Any] = {
    "block_out_channels": [128, 256, 512, 512], "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4, "layers_per_block": 2, "latent_channels": 4, "sample_size": 512,
}  # fmt: skip
_SCHEDULER: Mapping[str, Any] = {
    "num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
    "clip_sample": False, "prediction_type": "epsilon",
}  # fmt: skip
_CLIP_L: Mapping[str, Any] = {
    "architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "hidden_act": "quick_gelu", "hidden_size": 768,
    "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12, "projection_dim": 768,
    "vocab_size": 49408, "max_position_embeddings": 77,
}  # fmt: skip
_OPEN_CLIP_H = {**_CLIP_L, "hidden_act": "gelu", "hidden_size": 1024, "intermediate_size": 4096,
                "num_attention_heads": 16, "num_hidden_layers": 23, "projection_dim": 512}  # fmt: skip
_OPEN_CLIP_BIG_G = {**_CLIP_L, "architectures": ["CLIPTextModelWithProjection"], "hidden_act": "gelu",
                    "hidden_size": 1280, "intermediate_size": 5120, "num_attention_heads": 20,
                    "num_hidden_layers": 32, "projection_dim": 1280}  # fmt: skip
_XL_AUTOENCODER = {**_AUTOENCODER, "sample_size": 1024, "scaling_factor": 0.13025}


def parts_of(name: str) -> Mapping[str, Mapping[str, Any]]:
    """Return folder → configuration of a pipeline that the hub names; empty for names that are not known.

    A part that lies alone is in the folder of no name.
    """
    last = name.lower().rpartition("/")[2]
    return next((parts for pattern, parts in _pipelines().items() if re.fullmatch(pattern, last)), {})


def _pipelines() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Pattern of the last part of a name → its folders."""
    first, second, large = (dict(find_preset(f"{name}-unet").config) for name in ("sd-1.5", "sd-2.1", "sdxl"))
    shared = {"scheduler": _SCHEDULER, "vae": _AUTOENCODER, "text_encoder": _CLIP_L, "tokenizer": _CLIP_L}
    of_second = {**shared, "text_encoder": _OPEN_CLIP_H, "tokenizer": _OPEN_CLIP_H}
    velocity = {**_SCHEDULER, "prediction_type": "v_prediction"}
    return {
        "stable-diffusion-v1-[1-5]": {**shared, "unet": first},
        "stable-diffusion-2(-1)?": {**of_second, "unet": second, "scheduler": velocity},
        "stable-diffusion-2(-1)?-base": {**of_second, "unet": {**second, "sample_size": 64}},
        "stable-diffusion-xl-base-1.0": {
            **shared, "unet": large, "vae": _XL_AUTOENCODER, "text_encoder_2": _OPEN_CLIP_BIG_G,
            "tokenizer_2": _OPEN_CLIP_BIG_G,
        },
        "sd-vae-ft-(ema|mse)": {"": _AUTOENCODER},
        "sdxl-vae(-fp16-fix)?": {"": _XL_AUTOENCODER},
    }  # fmt: skip
