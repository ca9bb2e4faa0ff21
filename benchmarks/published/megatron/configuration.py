"""What megatron/training/arguments.py makes of a recipe: megatron-core's configurations, and models built by them."""

from typing import Any

import torch

from published.megatron.recipes import Recipe

T5_VOCABULARY = 29_096
"""bert-large-cased-vocab.txt has 28,996 tokens; ``--vocab-extra-ids 100``."""
ENCODER_LENGTH, DECODER_LENGTH = 512, 128


def model_configuration(recipe: Recipe) -> Any:
    """``core_transformer_config_from_args``."""
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.enums import AttnBackend

    gpt, fp16 = recipe.family == "gpt", recipe.precision == "fp16"
    dtype = torch.float16 if fp16 else torch.bfloat16
    interleaved = recipe.chunks > 1
    options: dict[str, Any] = {
        "num_layers": recipe.size.layers if gpt else 12,
        "hidden_size": recipe.size.hidden if gpt else 768,
        "num_attention_heads": recipe.size.heads if gpt else 12,
        "tensor_model_parallel_size": recipe.tensor_parallel,
        "pipeline_model_parallel_size": recipe.pipeline_parallel,
        "context_parallel_size": recipe.context_parallel,
        "expert_model_parallel_size": recipe.expert_parallel,
        "expert_tensor_parallel_size": recipe.expert_tensor_parallel,
        "virtual_pipeline_model_parallel_size": recipe.chunks if interleaved else None,
        "overlap_p2p_comm": interleaved,
        "batch_p2p_comm": not interleaved,
        "fp16": fp16,
        "bf16": not fp16,
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "attention_backend": AttnBackend[recipe.attention],
        # Of the layers that are megatron-core's own.
        "apply_query_key_layer_scaling": gpt and not recipe.engine,
        "attention_softmax_in_fp32": gpt,
        "bias_activation_fusion": True,
        "bias_dropout_fusion": True,
        "masked_softmax_fusion": True,
        # apex has no persistent layer norm for 512 and 768 features, so megatron-core takes the plain one, which keeps
        # what torch's keeps (fusions/fused_layer_norm.py ``persist_ln_hidden_sizes``).
        "persist_layer_norm": False,
        "apply_rope_fusion": False,
        "deterministic_mode": True,
        "gradient_accumulation_fusion": False,
        "deallocate_pipeline_outputs": True,
    } | recipe.options
    if options.get("gated_linear_unit"):
        options["activation_func"] = torch.nn.functional.silu
    return TransformerConfig(**options)


def parallel_configuration(recipe: Recipe) -> Any:
    """``get_model``: of ``DistributedDataParallel``."""
    from megatron.core.distributed import DistributedDataParallelConfig

    return DistributedDataParallelConfig(
        # arguments.py: "bfloat16 requires gradient accumulation and all-reduce to be done in fp32".
        grad_reduce_in_fp32=recipe.precision == "bf16",
        overlap_grad_reduce=recipe.overlap_reduce,
        overlap_param_gather=recipe.overlap_gather,
        use_distributed_optimizer=recipe.distributed_optimizer,
        num_distributed_optimizer_instances=recipe.optimizer_instances,
    )


def optimizer_configuration(recipe: Recipe, dtype: torch.dtype) -> Any:
    """``get_megatron_optimizer_config``."""
    from megatron.core.optimizer import OptimizerConfig

    fp16 = recipe.precision == "fp16"
    return OptimizerConfig(
        optimizer="adam", lr=1e-4, weight_decay=1e-2, clip_grad=1.0, log_num_zeros_in_grad=True,
        fp16=fp16, bf16=not fp16, params_dtype=dtype,
        use_distributed_optimizer=recipe.distributed_optimizer, overlap_param_gather=recipe.overlap_gather,
        **recipe.optimizer,
    )  # fmt: skip


def chunk(recipe: Recipe, config: Any, number: int) -> torch.nn.Module:
    """``model_provider`` of pretrain_gpt.py and pretrain_t5.py."""
    return _gpt(recipe, config, number) if recipe.family == "gpt" else _t5(recipe, config)


def _padded(tokens: int, recipe: Recipe) -> int:
    """``_vocab_size_with_padding``."""
    multiple = 128 * recipe.tensor_parallel
    return -(-tokens // multiple) * multiple


def _gpt(recipe: Recipe, config: Any, number: int) -> torch.nn.Module:
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel, gpt_layer_specs

    if config.num_moe_experts:
        stage = number if recipe.chunks > 1 else None
        specification = gpt_layer_specs.get_gpt_decoder_block_spec(
            config, use_transformer_engine=True, normalization=config.normalization, vp_stage=stage
        )
    elif recipe.engine:
        specification = gpt_layer_specs.get_gpt_layer_with_transformer_engine_spec(qk_layernorm=config.qk_layernorm)
    else:
        specification = gpt_layer_specs.get_gpt_layer_local_spec()
    where = {"ignore_virtual": False, "vp_stage": number if recipe.chunks > 1 else None}
    made: torch.nn.Module = GPTModel(
        config,
        specification,
        _padded(recipe.size.vocabulary, recipe),
        recipe.size.length,
        pre_process=parallel_state.is_pipeline_first_stage(**where),
        post_process=parallel_state.is_pipeline_last_stage(**where),
        share_embeddings_and_output_weights=recipe.tied,
        position_embedding_type="rope" if recipe.rope else "learned_absolute",
        vp_stage=where["vp_stage"],
    )
    return made


def _t5(recipe: Recipe, config: Any) -> torch.nn.Module:
    from megatron.core.models.T5 import T5Model, t5_spec

    kind = "transformer_engine" if recipe.engine else "local"
    made: torch.nn.Module = T5Model(
        config,
        config,
        getattr(t5_spec, f"get_t5_encoder_with_{kind}_block_spec")(12),
        getattr(t5_spec, f"get_t5_decoder_with_{kind}_block_spec")(12),
        _padded(T5_VOCABULARY, recipe),
        ENCODER_LENGTH,
        share_embeddings_and_output_weights=True,
    )
    return made
