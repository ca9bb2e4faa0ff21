"""Where each setting of ``Zero`` stands in ``ds_config.json`` (deepspeed/runtime/zero/config.py, 0.19.8)."""

from collections.abc import Mapping

_SECTION = "zero_optimization"
_OPTIMIZER, _PARAM = f"{_SECTION}.offload_optimizer", f"{_SECTION}.offload_param"

ZERO_KEYS: Mapping[str, tuple[str, ...]] = {
    "stage": (f"{_SECTION}.stage",),
    "offload_optimizer": (f"{_OPTIMIZER}.device",),
    "offload_param": (f"{_PARAM}.device",),
    "overlap_comm": (f"{_SECTION}.overlap_comm",),
    "contiguous_gradients": (f"{_SECTION}.contiguous_gradients",),
    "reduce_bucket_size": (f"{_SECTION}.reduce_bucket_size",),
    "allgather_bucket_size": (f"{_SECTION}.allgather_bucket_size",),
    "prefetch_bucket_size": (f"{_SECTION}.stage3_prefetch_bucket_size",),
    "max_live_parameters": (f"{_SECTION}.stage3_max_live_parameters",),
    "max_reuse_distance": (f"{_SECTION}.stage3_max_reuse_distance",),
    "param_persistence_threshold": (f"{_SECTION}.stage3_param_persistence_threshold",),
    "reduce_scatter": (f"{_SECTION}.reduce_scatter",),
    "round_robin_gradients": (f"{_SECTION}.round_robin_gradients",),
    "pin_memory": (f"{_OPTIMIZER}.pin_memory", f"{_PARAM}.pin_memory"),
    "param_buffer_count": (f"{_PARAM}.buffer_count",),
    "param_buffer_size": (f"{_PARAM}.buffer_size",),
    "param_max_in_cpu": (f"{_PARAM}.max_in_cpu",),
    "optimizer_buffer_count": (f"{_OPTIMIZER}.buffer_count",),
    "sub_group_size": (f"{_SECTION}.sub_group_size",),
    "hpz_partition_size": (f"{_SECTION}.zero_hpz_partition_size",),
    "gradient_accumulation_dtype": ("data_types.grad_accum_dtype",),
}
"""Field → its places."""

OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "adamw": ("AdamW", {}),
    "adam": ("Adam", {"adam_w_mode": False}),
    "adagrad": ("Adagrad", {}),
    "lion": ("Lion", {}),
    "sgd": ("SGD", {}),
    "sgd-momentum": ("SGD", {"momentum": 0.9}),
    "adafactor": ("Adafactor", {}),
}
"""Optimizer → ``optimizer.type`` and ``params``: names that DeepSpeed knows, then those of torch.optim
(runtime/engine.py, ``_configure_basic_optimizer``)."""
