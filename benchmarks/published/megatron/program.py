"""What Megatron-LM's ``pretrain_gpt.py`` and ``pretrain_t5.py`` do with megatron-core, in one process of eight."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from memplan.hardware.catalog import load_profile
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.measure.played import play_on_device
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job
from published.case import Prediction
from published.megatron.recipes import RANKS, Recipe
from published.megatron.stand_ins import install

BATCH = 4
GPT_LENGTH, ENCODER_LENGTH, DECODER_LENGTH = 1024, 512, 128
GPT_VOCABULARY = 50_304
"""GPT-2's 50,257 tokens; padded to a multiple of 128 per tensor-parallel rank below."""
T5_VOCABULARY = 29_096
"""bert-large-cased-vocab.txt has 28,996 tokens; ``--vocab-extra-ids 100``."""

Batches = Iterator[dict[str, torch.Tensor]]
LossFunction = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]]


class _Unbuilt(torch.nn.Module):
    """Stands for the model until the first step builds it, so that what it is built from is recorded."""

    parts: Any = None


def predicted(recipe: Recipe) -> Prediction:
    """Peaks of a recipe's last rank. ``torch.compile`` is asked for by megatron-core's fused functions alone."""
    # megatron-core warns of each package that it does without.
    warnings.simplefilter("ignore")
    profile = load_profile("h100-80g")
    spec = JobSpec(target=FileTarget(path=Path(__file__)), batch_size=BATCH, compile="inductor")
    source = ModelSource(
        model=_Unbuilt, batch=lambda *_: (), optimizer=lambda _: _, train_step=partial(_train_step, recipe)
    )
    trace = trace_job(lambda: source, spec, DeviceTraits.of(profile))
    memory = play_on_device(build_lifetimes(trace), profile).memory
    return Prediction(requested=memory.peak_requested, allocated=memory.peak_allocated, reserved=memory.peak_reserved)


def _train_step(recipe: Recipe, holder: _Unbuilt, _: object, __: object) -> Any:
    """megatron/training/training.py ``train_step``."""
    if holder.parts is None:
        holder.parts = _built(recipe)
    from megatron.core.pipeline_parallel import get_forward_backward_func

    model, optimizer = holder.parts
    model.zero_grad_buffer()
    optimizer.zero_grad()
    gpt = recipe.family == "gpt"
    losses = get_forward_backward_func()(
        forward_step_func=_gpt_step if gpt else _t5_step,
        data_iterator=_gpt_batches() if gpt else _t5_batches(),
        model=[model],
        num_microbatches=recipe.micro_batches,
        seq_length=GPT_LENGTH if gpt else ENCODER_LENGTH,
        micro_batch_size=BATCH,
        decoder_seq_length=GPT_LENGTH if gpt else DECODER_LENGTH,
        forward_only=False,
    )
    optimizer.step()
    return losses


def _built(recipe: Recipe) -> tuple[Any, Any]:
    """``setup_model_and_optimizer``."""
    install()
    _join(recipe)
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.module import Float16Module

    fp16, sharded = recipe.precision == "fp16", recipe.distributed_optimizer
    config = _configuration(recipe)
    model = (_gpt if recipe.family == "gpt" else _t5)(recipe, config)
    model.cuda(torch.cuda.current_device())
    ddp = DistributedDataParallelConfig(
        # arguments.py: "bfloat16 requires gradient accumulation and all-reduce to be done in fp32".
        grad_reduce_in_fp32=not fp16,
        overlap_grad_reduce=sharded,
        overlap_param_gather=sharded,
        use_distributed_optimizer=sharded,
    )
    model = DistributedDataParallel(config, ddp, Float16Module(config, model))
    options = OptimizerConfig(
        optimizer="adam", lr=1e-4, weight_decay=1e-2, clip_grad=1.0, log_num_zeros_in_grad=True,
        fp16=fp16, bf16=not fp16, params_dtype=config.params_dtype,
        use_distributed_optimizer=sharded, overlap_param_gather=sharded,
    )  # fmt: skip
    optimizer = get_megatron_optimizer(options, [model], use_gloo_process_groups=False)
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    if sharded:
        config.no_sync_func = model.no_sync
    return model, optimizer


def _join(recipe: Recipe) -> None:
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    torch.distributed.init_process_group("fake", rank=RANKS - 1, world_size=RANKS, store=FakeStore())
    parallel_state.initialize_model_parallel(
        recipe.tensor_parallel, recipe.pipeline_parallel, create_gloo_process_groups=False
    )
    model_parallel_cuda_manual_seed(1234)


def _configuration(recipe: Recipe) -> Any:
    """``core_transformer_config_from_args``."""
    from megatron.core.transformer import TransformerConfig

    gpt, fp16 = recipe.family == "gpt", recipe.precision == "fp16"
    dtype = torch.float16 if fp16 else torch.bfloat16
    return TransformerConfig(
        num_layers=12,
        hidden_size=512 if gpt else 768,
        num_attention_heads=8 if gpt else 12,
        tensor_model_parallel_size=recipe.tensor_parallel,
        pipeline_model_parallel_size=recipe.pipeline_parallel,
        fp16=fp16,
        bf16=not fp16,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        apply_query_key_layer_scaling=gpt,
        attention_softmax_in_fp32=gpt,
        calculate_per_token_loss=not gpt,
        bias_activation_fusion=True,
        bias_dropout_fusion=True,
        masked_softmax_fusion=True,
        # apex has no persistent layer norm for 512 and 768 features, so megatron-core takes the plain one, which keeps
        # what torch's keeps (fusions/fused_layer_norm.py ``persist_ln_hidden_sizes``).
        persist_layer_norm=False,
        deterministic_mode=True,
        gradient_accumulation_fusion=False,
        deallocate_pipeline_outputs=True,
    )


def _padded(tokens: int, recipe: Recipe) -> int:
    """``_vocab_size_with_padding``."""
    multiple = 128 * recipe.tensor_parallel
    return -(-tokens // multiple) * multiple


def _gpt(recipe: Recipe, config: Any) -> torch.nn.Module:
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    made: torch.nn.Module = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        _padded(GPT_VOCABULARY, recipe),
        GPT_LENGTH,
        pre_process=parallel_state.is_pipeline_first_stage(),
        share_embeddings_and_output_weights=True,
    )
    return made


def _t5(recipe: Recipe, config: Any) -> torch.nn.Module:
    from megatron.core.models.T5 import T5Model
    from megatron.core.models.T5.t5_spec import (
        get_t5_decoder_with_local_block_spec,
        get_t5_encoder_with_local_block_spec,
    )

    made: torch.nn.Module = T5Model(
        config,
        config,
        get_t5_encoder_with_local_block_spec(12),
        get_t5_decoder_with_local_block_spec(12),
        _padded(T5_VOCABULARY, recipe),
        ENCODER_LENGTH,
        share_embeddings_and_output_weights=True,
    )
    return made


def _gpt_batches() -> Batches:
    while True:
        ids = torch.zeros(BATCH, GPT_LENGTH, dtype=torch.long)
        yield {
            "tokens": ids,
            "labels": ids.clone(),
            "loss_mask": torch.zeros(BATCH, GPT_LENGTH),
            "attention_mask": torch.zeros(BATCH, 1, GPT_LENGTH, GPT_LENGTH, dtype=torch.bool),
            "position_ids": ids.clone(),
        }


def _gpt_step(batches: Batches, model: Any) -> tuple[torch.Tensor, LossFunction]:
    """``get_batch_on_this_tp_rank`` and ``forward_step``; the last of several stages has no use for the tokens."""
    from megatron.core import parallel_state

    given = {name: tensor.cuda(non_blocking=True) for name, tensor in next(batches).items()}
    first = parallel_state.is_pipeline_first_stage()
    tokens, positions = (given.pop(name) if first else None for name in ("tokens", "position_ids"))
    output = model(tokens, positions, given["attention_mask"], labels=given["labels"], loss_mask=given["loss_mask"])
    return output, partial(_loss, given["loss_mask"])


def _t5_batches() -> Batches:
    lengths = {"text_enc": 512, "text_dec": 128, "labels": 128, "loss_mask": 128, "enc_mask": 512, "dec_mask": 128}
    while True:
        yield {name: torch.zeros(BATCH, length, dtype=torch.long) for name, length in lengths.items()}


def _t5_step(batches: Batches, model: Any) -> tuple[torch.Tensor, LossFunction]:
    """``get_batch``, whose parts are views of one tensor (tensor_parallel/data.py ``broadcast_data``)."""
    from megatron.core.datasets.t5_dataset import T5MaskedWordPieceDataset

    host = next(batches)
    flat = torch.cat([each.view(-1) for each in host.values()]).cuda()
    parts = flat.split([each.numel() for each in host.values()])
    given = {name: part.view(tensor.shape) for (name, tensor), part in zip(host.items(), parts, strict=True)}
    loss_mask = given["loss_mask"].float()
    encoder, decoder = given["enc_mask"] < 0.5, given["dec_mask"] < 0.5
    encoder, decoder, both = T5MaskedWordPieceDataset.config_attention_mask(
        given["text_enc"], given["text_dec"], encoder, decoder, True
    )
    output = model(given["text_enc"], given["text_dec"], encoder, decoder, both, lm_labels=given["labels"])
    return output, partial(_loss, loss_mask)


def _loss(loss_mask: torch.Tensor, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """pretrain_gpt.py ``loss_func``."""
    losses, mask = output.view(-1).float(), loss_mask.view(-1).float()
    loss = torch.sum(losses * mask)
    number = mask.sum().clone().detach().to(torch.int)
    return loss, number, {"lm loss": torch.cat([loss.clone().detach().view(1), number.view(1)])}
