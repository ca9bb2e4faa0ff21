"""What a training step feeds a model of each task: keyword inputs of the shapes that a Trainer would pass.

Language models get no ``attention_mask`` (packed sequences: SDPA can then run its causal kernels); encoders get one of
ones, as padded batches have, which transformers expands to a ``(batch, 1, seq, seq)`` mask.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from memplan.errors import UsageError
from memplan.job.spec import Mode

if TYPE_CHECKING:
    import torch

Task = Literal[
    "causal-lm",
    "masked-lm",
    "seq2seq",
    "sequence-classification",
    "image-classification",
    "speech-seq2seq",
    "contrastive",
    "diffusion",
]
TASKS: tuple[Task, ...] = get_args(Task)

Batch = dict[str, Any]
Maker = Callable[[Any, int, int], Batch]
"""``(configuration, batch_size, seq_len)`` → keyword inputs, labels included."""

DEFAULT_SEQ_LEN = 2048
"""Tokens per sample where neither the user nor a preset says; less where the model has fewer positions."""
DEFAULT_IMAGE_SIZE = 224
"""Pixels per side where the configuration has no ``image_size`` (the size ImageNet models are published for)."""
CAPTION_TOKENS = 77
"""Positions of the CLIP text encoders that condition Stable Diffusion and SDXL."""
FRAMES_PER_POSITION = 2
"""Whisper's second convolution halves the mel frames (transformers, WhisperEncoder.forward)."""
WITHOUT_TOKENS: frozenset[Task] = frozenset({"image-classification", "diffusion"})
"""Tasks whose batch has no sequence length."""
# Names that configurations use for their number of positions, tried in order.
_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions", "seq_length", "max_seq_len")


def batch_maker(
    task: Task, config: Any, *, default_seq_len: int | None, mode: Mode
) -> "Callable[[int, int | None], Batch]":
    """A ``batch`` function for one task.

    The configuration's sizes decide vocabulary and image size. What the loss alone needs is for training; an
    encoder-decoder is told in inference what to continue.
    """

    def batch(batch_size: int, seq_len: int | None) -> Batch:
        made = MAKERS[task](config, batch_size, seq_len or default_seq_len or DEFAULT_SEQ_LEN)
        if mode == "inference" and task in _ENCODER_DECODERS:
            made["decoder_input_ids"] = made["labels"]
        return made if mode == "train" else {name: value for name, value in made.items() if name not in _FOR_LOSS}

    return batch


def denoising_loss(output: Any, batch: Mapping[str, Any]) -> "torch.Tensor":
    """Mean squared error in fp32 between the predicted noise and the noise (diffusers, train_text_to_image.py).

    The noisy sample stands for the noise, which has its shape and dtype. A model that predicts the variance as well
    gives twice the channels; the first half is the noise.
    """
    from torch.nn.functional import mse_loss

    target = batch["sample"] if "sample" in batch else batch["hidden_states"]
    predicted = output.sample
    if predicted.shape[1] != target.shape[1]:
        predicted, _variance = predicted.chunk(2, dim=1)
    return mse_loss(predicted.float(), target.float(), reduction="mean")


def positions(config: Any) -> int | None:
    """How many tokens a sample may have as far as the configuration says."""
    text = text_part(config)
    found = (getattr(text, name, None) for name in _POSITIONS)
    return next((number for number in found if isinstance(number, int) and number > 0), None)


def text_part(config: Any) -> Any:
    """The part of a composite configuration that its language decoder reads; a plain configuration is its own."""
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def _tokens(batch_size: int, seq_len: int, below: int) -> "torch.Tensor":
    import torch

    return torch.randint(0, below, (batch_size, seq_len))


def _vocabulary(config: Any) -> int:
    text = text_part(config)
    # Models of characters (CANINE) have no vocabulary; they hash code points into buckets.
    names = ("vocab_size", "num_hash_buckets")
    size = next((found for name in names for part in (text, config) if (found := getattr(part, name, None))), None)
    if not isinstance(size, int):
        raise UsageError(
            f"{type(config).__name__} has no vocabulary size",
            hint="give the model's inputs with --input NAME=dtype[dims]",
        )
    return size


def _causal_lm(config: Any, batch_size: int, seq_len: int) -> Batch:
    vocabulary = _vocabulary(config)
    labels = _tokens(batch_size, seq_len, vocabulary)
    # Models of sound codes read the codebooks of a sample as rows, and their loss compares the codes of a position.
    codebooks = getattr(text_part(config), "num_codebooks", None) or 1
    if codebooks > 1:
        labels = labels.unsqueeze(-1).expand(-1, -1, codebooks)
    return {"input_ids": _tokens(batch_size * codebooks, seq_len, vocabulary), "labels": labels}


def _masked_lm(config: Any, batch_size: int, seq_len: int) -> Batch:
    return _causal_lm(config, batch_size, seq_len) | _mask(batch_size, seq_len)


def _mask(batch_size: int, seq_len: int) -> Batch:
    import torch

    return {"attention_mask": torch.ones((batch_size, seq_len), dtype=torch.int64)}


def _sequence_classification(config: Any, batch_size: int, seq_len: int) -> Batch:
    tokens = {"input_ids": _tokens(batch_size, seq_len, _vocabulary(config))}
    return tokens | _mask(batch_size, seq_len) | {"labels": _classes(config, batch_size)}


def _classes(config: Any, batch_size: int) -> "torch.Tensor":
    return _tokens(batch_size, 1, max(1, config.num_labels))[:, 0]


def _image(config: Any, batch_size: int) -> "torch.Tensor":
    import torch

    size = getattr(config, "image_size", None) or DEFAULT_IMAGE_SIZE
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return torch.randn(batch_size, getattr(config, "num_channels", 3), height, width)


def _image_classification(config: Any, batch_size: int, _seq_len: int) -> Batch:
    vision = getattr(config, "vision_config", None) or config
    if not hasattr(vision, "image_size") and hasattr(vision, "vocab_size") and hasattr(vision, "n_positions"):
        # ImageGPT reads an image as the colour clusters of its pixels.
        pixels = _tokens(batch_size, vision.n_positions, vision.vocab_size)
        return {"input_ids": pixels, "labels": _classes(config, batch_size)}
    if not hasattr(vision, "image_size") and hasattr(vision, "num_patches"):
        return _patches(vision, batch_size) | {"labels": _classes(config, batch_size)}
    return {"pixel_values": _image(vision, batch_size), "labels": _classes(config, batch_size)}


def _patches(vision: Any, batch_size: int) -> Batch:
    """Square images cut into patches beforehand, as models of any aspect ratio (SigLIP 2) read them."""
    import torch

    side = math.isqrt(vision.num_patches)
    numbers = vision.num_channels * vision.patch_size**2
    return {
        "pixel_values": torch.randn(batch_size, side * side, numbers),
        "pixel_attention_mask": torch.ones((batch_size, side * side), dtype=torch.int64),
        "spatial_shapes": torch.full((batch_size, 2), side, dtype=torch.int64),
    }


def _speech(config: Any, batch_size: int, seq_len: int) -> Batch:
    import torch

    frames = FRAMES_PER_POSITION * config.max_source_positions
    features = torch.randn(batch_size, config.num_mel_bins, frames)
    return {"input_features": features, "labels": _tokens(batch_size, seq_len, config.vocab_size)}


def _contrastive(config: Any, batch_size: int, seq_len: int) -> Batch:
    tokens = {"input_ids": _tokens(batch_size, seq_len, _vocabulary(config))} | _mask(batch_size, seq_len)
    return tokens | {"pixel_values": _image(config.vision_config, batch_size), "return_loss": True}


def _diffusion(config: Any, batch_size: int, _seq_len: int) -> Batch:
    import torch

    sample = torch.randn(batch_size, config.in_channels, config.sample_size, config.sample_size)
    steps = torch.randint(0, 1000, (batch_size,))
    if not hasattr(config, "cross_attention_dim") or hasattr(config, "num_embeds_ada_norm"):
        classes = torch.randint(0, config.num_embeds_ada_norm, (batch_size,))
        return {"hidden_states": sample, "timestep": steps, "class_labels": classes}
    caption = torch.randn(batch_size, CAPTION_TOKENS, config.cross_attention_dim)
    conditions = {"sample": sample, "timestep": steps, "encoder_hidden_states": caption}
    return conditions | _size_conditions(config, batch_size)


def _size_conditions(config: Any, batch_size: int) -> Batch:
    """SDXL's pooled caption and image sizes (diffusers, train_text_to_image_sdxl.py)."""
    import torch

    if config.addition_embed_type != "text_time":
        return {}
    times = 6  # Original size, crop and target size: two numbers each.
    pooled = config.projection_class_embeddings_input_dim - times * config.addition_time_embed_dim
    return {
        "added_cond_kwargs": {
            "text_embeds": torch.randn(batch_size, pooled),
            "time_ids": torch.randn(batch_size, times),
        }
    }


MAKERS: Mapping[Task, Maker] = {
    "causal-lm": _causal_lm,
    "masked-lm": _masked_lm,
    "seq2seq": _masked_lm,
    "sequence-classification": _sequence_classification,
    "image-classification": _image_classification,
    "speech-seq2seq": _speech,
    "contrastive": _contrastive,
    "diffusion": _diffusion,
}
_FOR_LOSS = frozenset({"labels", "return_loss"})
_ENCODER_DECODERS: frozenset[Task] = frozenset({"seq2seq", "speech-seq2seq"})
"""Their decoder reads the labels, shifted; without labels it must be given tokens."""
