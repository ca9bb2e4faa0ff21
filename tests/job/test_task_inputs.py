"""Inputs of models that read other things than words or pixels: real tiny models take them and give a loss."""

from typing import Any

import pytest
import torch

from memplan.job.huggingface import source_of
from memplan.job.huggingface.tasks import Task
from memplan.job.spec import JobSpec, PresetTarget
from tests.support.libraries import library

transformers = library("transformers")

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def characters() -> tuple[Any, Any]:
    sizes = SMALL | {"intermediate_size": 16, "num_hash_buckets": 32, "num_hash_functions": 2, "type_vocab_size": 1}
    positions = {"max_position_embeddings": 64, "local_transformer_stride": 16, "upsampling_kernel_size": 2}
    config = transformers.CanineConfig(**sizes, **positions, downsampling_rate=2, pad_token_id=0)
    return transformers.CanineForSequenceClassification, config


def colours() -> tuple[Any, Any]:
    config = transformers.ImageGPTConfig(vocab_size=9, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    return transformers.ImageGPTForImageClassification, config


def patches() -> tuple[Any, Any]:
    vision = SMALL | {"intermediate_size": 16, "num_patches": 16, "patch_size": 2}
    text = SMALL | {"intermediate_size": 16, "vocab_size": 9, "projection_size": 16}
    config = transformers.Siglip2Config(text_config=text, vision_config=vision)
    return transformers.Siglip2ForImageClassification, config


def sounds() -> tuple[Any, Any]:
    config = transformers.MusicgenDecoderConfig(
        vocab_size=24, num_codebooks=4, **SMALL, ffn_dim=16, max_position_embeddings=32, layerdrop=0.0
    )
    return transformers.MusicgenForCausalLM, config


@pytest.mark.parametrize(
    ("task", "made"),
    [
        ("sequence-classification", characters),
        ("image-classification", colours),
        ("image-classification", patches),
        ("causal-lm", sounds),
    ],
    ids=["characters", "colours", "patches", "sounds"],
)
def test_a_real_model_takes_the_batch_and_gives_a_loss(task: Task, made: Any) -> None:
    model_class, config = made()
    spec = JobSpec(target=PresetTarget(name="tiny"), batch_size=2, seq_len=16)
    source = source_of(model_class, config, task, spec=spec)
    assert source.batch is not None
    loss = source.model()(**source.batch(2, 16)).loss
    assert loss.shape == ()
    assert torch.isfinite(loss)
