"""Rows that cannot be run again, each with the reason.

The grounds are the scripts and the libraries, for ``embedding`` the figures themselves; never an error of a prediction.
"""

from published.liger.rows import Row

BY_KERNEL = {
    "embedding": "its script compiles a module before every measurement, and what that leaves alive is in the figures: "
    "the smallest, of a program with 60 MiB of tensors, is 12 GiB",
    "megatron_cross_entropy": "its script measures in worker processes of a process group, not through _test_memory",
    "relu_squared": "no released script takes its configuration",
}
"""Kernel → reason for all of its rows."""
BY_PROVIDER = {
    "torch_compile": "compiled code (torch.compile): scripts run as eager code here, which takes more",
    "deepspeed_tiled": "DeepSpeed's own autograd function; its version is not given",
    "megatron": "Megatron-Core's kernels; its version is not given",
    "megatron-fused": "Megatron-Core's kernels; its version is not given",
    "megatron-unfused": "Megatron-Core's kernels; its version is not given",
}
"""Provider → reason for its rows of all kernels."""


COMPILED = frozenset(
    {
        "distill_cosine_loss", "distill_jsd_loss", "fused_linear_cpo_loss", "fused_linear_grpo_loss_sequence",
        "fused_linear_grpo_loss_token", "fused_linear_orpo_loss", "fused_linear_simpo_loss", "kto_loss",
    }
)  # fmt: skip
"""Kernels of ``liger_kernel.chunked_loss``, which compile the loss of a chunk (``compiled=True`` is the default)."""


def reason_against(row: Row) -> str | None:
    """Why a row is not run; None if it is."""
    if row.kernel == "fused_linear_orpo_loss" and row.provider == "huggingface":
        return (
            "its script fails in the releases before 0.6.1, and from there on builds the model once and not every time"
        )
    if row.kernel in COMPILED and row.provider == "liger":
        return BY_PROVIDER["torch_compile"]
    return BY_KERNEL.get(row.kernel) or BY_PROVIDER.get(row.provider)
