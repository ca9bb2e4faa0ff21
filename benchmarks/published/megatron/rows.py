"""Which row of the table is which recipe."""

from dataclasses import replace
from typing import Any, Final

from published.megatron.recipes import Recipe, Size

EXPANDABLE: Final = "expandable_segments:True"
NONDETERMINISTIC: Final = {"deterministic_mode": False}
SEVEN: Final = Size(layers=32, hidden=4096, heads=32, length=8192, vocabulary=131_073, micro_batch=2, global_batch=8)
"""``--vocab-size``, where the older tokenizer of nothing adds one to it."""

_GPT: Final = Recipe(engine=True)
_STAGES: Final = replace(_GPT, pipeline_parallel=4)
_CHUNKS: Final = replace(_STAGES, chunks=3)
_SQUARE: Final = replace(_GPT, tensor_parallel=2, pipeline_parallel=2)
_UNDROPPED: Final = {"sequence_parallel": True, "hidden_dropout": 0.0, "attention_dropout": 0.0, **NONDETERMINISTIC}
_RING: Final = replace(_GPT, tensor_parallel=2, context_parallel=2, attention="flash", options=_UNDROPPED)
_SQUARE_RING: Final = replace(_RING, pipeline_parallel=2)
_TOKENS_RING: Final = replace(_SQUARE_RING, options={"calculate_per_token_loss": True, **_UNDROPPED})
_OVERLAPPED: Final[dict[str, Any]] = {"distributed_optimizer": True, "overlap_reduce": True, "overlap_gather": True}
_SEVEN: Final = Recipe(engine=True, size=SEVEN, options={"num_query_groups": 8}, tied=False, **_OVERLAPPED)
_TUNED: Final[dict[str, Any]] = {
    "size": Size(global_batch=40),
    "alloc_conf": EXPANDABLE,
    "options": {"overlap_p2p_comm_warmup_flush": True, "microbatch_group_size_per_vp_stage": 5},
}
_SWIGLU: Final = replace(_STAGES, options={"gated_linear_unit": True, "ffn_hidden_size": 4 * 512 * 2 // 3 // 64 * 64})
_UNBIASED: Final = {"add_bias_linear": False, "bias_activation_fusion": False}
_T5: Final = Recipe(family="t5", options={"gradient_accumulation_fusion": True, "calculate_per_token_loss": True})

LOCAL: Final = {
    "gpt-gpt3_mcore_tp1_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_param_gather": Recipe(
        precision="fp16", **_OVERLAPPED
    ),
    "gpt-gpt3_mcore_tp1_pp2": Recipe(pipeline_parallel=2),
    "gpt-gpt3_mcore_tp1_pp4": Recipe(pipeline_parallel=4),
    "gpt-gpt3_mcore_tp4_pp1_resume_torch_dist": Recipe(precision="fp16", tensor_parallel=4),
    "t5-t5_mcore_tp1_pp1_vp1_resume_torch": _T5,
    "t5-t5_mcore_tp4_pp1": replace(_T5, tensor_parallel=4),
    "t5-t5_mcore_tp4_pp1_resume_torch_dist": replace(_T5, tensor_parallel=4),
}
"""megatron-core's own layers: name of the test case → recipe."""
ENGINE: Final = {
    "gpt3_7b_tp1_pp4_memory_speed-dev_dgx_a100": replace(
        _SEVEN, gpu="a100-80g", pipeline_parallel=4, chunks=8, size=replace(SEVEN, micro_batch=1)
    ),
    "gpt3_7b_tp4_pp1_memory_speed-dev_dgx_a100": replace(_SEVEN, gpu="a100-80g", tensor_parallel=4),
    "gpt3_7b_tp4_pp1_memory_speed-dev_dgx_gb200": replace(_SEVEN, gpu="gb200", tensor_parallel=4),
    "gpt3_7b_tp4_pp1_memory_speed": replace(_SEVEN, tensor_parallel=4),
    "tp1_pp1_dist_optimizer_fim_dataset": replace(_GPT, attention="unfused", distributed_optimizer=True),
    "tp1_pp1_frozen_resume_torch_dist_dist_optimizer": replace(_GPT, distributed_optimizer=True),
    "tp1_pp1_resume_torch_dist_dist_optimizer": replace(_GPT, distributed_optimizer=True),
    "tp1_pp2_resume_torch_dist_rope_embeddings_interleaved_no_fusion": replace(
        _GPT, pipeline_parallel=2, rope=True, options={"rotary_interleaved": True}
    ),
    "tp1_pp4_frozen_resume_torch_dist_swiglu": _SWIGLU,
    "tp1_pp4_resume_torch_dist_persistent_disable_bias_linear": replace(_STAGES, options=_UNBIASED),
    "tp1_pp4_resume_torch_dist_swiglu": _SWIGLU,
    "tp1_pp4_resume_torch_dist_untie_embeddings_and_outputs": replace(_STAGES, tied=False),
    "tp1_pp4_vp1_dist_optimizer_overlap_grad_reduce_param_gather_overlap_optimizer": replace(
        _CHUNKS, attention="unfused", optimizer={"overlap_param_gather_with_optimizer_step": True}, **_OVERLAPPED
    ),
    "tp1_pp4_vp1_resume_torch_decoupled_lr": replace(_CHUNKS, alloc_conf=EXPANDABLE, optimizer={"decoupled_lr": 2e-4}),
    "tp1_pp4_vp1_resume_torch_dist_calculate_per_token_loss": replace(
        _CHUNKS, options={"calculate_per_token_loss": True}
    ),
    "tp1_pp4_vp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce": replace(
        _CHUNKS, distributed_optimizer=True, overlap_reduce=True
    ),
    "tp1_pp4_vp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_untied": replace(
        _CHUNKS, distributed_optimizer=True, overlap_reduce=True, tied=False, alloc_conf=EXPANDABLE
    ),
    "tp1_pp4_vp1_resume_torch_dist_tunable_overlap": replace(_CHUNKS, **_TUNED),
    "tp1_pp4_vp1_tunable_overlap": replace(_CHUNKS, attention="unfused", **_TUNED),
    "tp1_pp4_vp1_uneven_pipeline": replace(
        _STAGES,
        attention="unfused",
        tied=False,
        options={"num_layers_in_first_pipeline_stage": 2, "num_layers_in_last_pipeline_stage": 2},
    ),
    "tp2_pp1_frozen_resume_torch_dist_cp2_nondeterministic": _RING,
    "tp2_pp1_resume_torch_dist_cp2_nondeterministic": _RING,
    "tp2_pp2_cp2": _SQUARE_RING,
    "tp2_pp2_cp2_calculate_per_token_loss": _TOKENS_RING,
    # No layer has experts, so how these would be split does not matter.
    "tp2_pp2_cp2_etp4_calculate_per_token_loss_nondeterministic_dp_last": _TOKENS_RING,
    "tp2_pp2_cp2_nondeterministic": _SQUARE_RING,
    "tp2_pp2_resume_torch_dist_cp2_nondeterministic": _SQUARE_RING,
    "tp2_pp2_resume_torch_dist_cross_entropy_loss_fusion": replace(
        _SQUARE, options={"cross_entropy_loss_fusion": True, **NONDETERMINISTIC}
    ),
    "tp2_pp2_resume_torch_dist_no_create_attention_mask_in_dataloader": replace(
        _SQUARE, attention_mask=False, alloc_conf=EXPANDABLE
    ),
    "tp2_pp2_resume_torch_dist_reshard_1x4xNone": replace(_SQUARE, options=NONDETERMINISTIC),
    "tp4_pp1_dist_optimizer_overlap_grad_reduce_param_gather": replace(
        _GPT, tensor_parallel=4, attention="unfused", **_OVERLAPPED
    ),
    "tp4_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_param_gather": replace(
        _GPT, tensor_parallel=4, **_OVERLAPPED
    ),
    "tp4_pp1_resume_torch_dist_qk_layernorm_test_mode": replace(
        _GPT, tensor_parallel=4, options={"qk_layernorm": True}
    ),
}
"""Transformer Engine's layers in a GPT: likewise, without ``gpt-gpt3_mcore_te_`` before."""
_EXPERTS: Final = {**_UNBIASED, "sequence_parallel": True, "num_moe_experts": 8, "moe_aux_loss_coeff": 0.0}
_GROUPED: Final = {**_EXPERTS, "moe_grouped_gemm": True, "moe_router_topk": 2}
_SINKHORN: Final = replace(
    _GPT,
    tensor_parallel=2,
    expert_parallel=2,
    distributed_optimizer=True,
    options={**_EXPERTS, "moe_router_load_balancing_type": "sinkhorn", "moe_router_topk": 1},
)
EXPERTS: Final = {
    "te_tp2_pp1_frozen_resume_torch_dist_te_8experts2parallel_dist_optimizer": replace(_SINKHORN, scatters=True),
    "te_tp2_pp1_frozen_resume_torch_dist_te_8experts2parallel_groupedGEMM": replace(
        _SINKHORN,
        distributed_optimizer=False,
        scatters=True,
        options={**_SINKHORN.options, "moe_grouped_gemm": True},
    ),
    "te_tp2_pp1_resume_torch_dist_te_8experts2parallel_dist_optimizer": _SINKHORN,
    "te_tp2_pp1_resume_torch_dist_te_8experts2parallel_multi_dist_optimizer_instances": replace(
        _SINKHORN, optimizer_instances=2
    ),
    "te_tp2_pp1_te_8experts_etp1_ep4": replace(
        _GPT,
        tensor_parallel=2,
        expert_parallel=4,
        expert_tensor_parallel=1,
        attention="unfused",
        scatters=True,
        options={**_GROUPED, "moe_aux_loss_coeff": 1e-2},
    ),
    "te_tp4_ep2_etp2_pp2_resume_torch_dist_dist_optimizer": replace(
        _GPT,
        tensor_parallel=4,
        pipeline_parallel=2,
        expert_parallel=2,
        expert_tensor_parallel=2,
        distributed_optimizer=True,
        options={
            **_GROUPED,
            "moe_token_dispatcher_type": "alltoall",
            "moe_router_dtype": "fp32",
            "moe_ffn_hidden_size": 1024,
            "moe_shared_expert_intermediate_size": 512,
        },
    ),
}
"""Mixtures of experts: likewise, without ``moe-gpt3_mcore_`` or ``moe-gpt3_moe_mcore_`` before."""
_UNFUSED_T5: Final = replace(_T5, engine=True, attention="unfused")
RECIPES: Final = {
    **LOCAL,
    **{("gpt-" if name.startswith("gpt3_7b") else "gpt-gpt3_mcore_te_") + name: each for name, each in ENGINE.items()},
    **{f"moe-gpt3_{'moe_' * ('_etp2_' in name)}mcore_{name}": each for name, each in EXPERTS.items()},
    "t5-t5_mcore_te_tp1_pp1_vp1_resume_torch": _UNFUSED_T5,
    "t5-t5_mcore_te_tp4_pp1": replace(_UNFUSED_T5, tensor_parallel=4),
    # On how many nodes is not said; nothing is shared among data-parallel ranks.
    "t5-t5_release_sm": replace(
        _UNFUSED_T5,
        tensor_parallel=4,
        size=Size(micro_batch=32, global_batch=512),
        options={"gradient_accumulation_fusion": True, **NONDETERMINISTIC},
    ),
}
"""All of them."""
