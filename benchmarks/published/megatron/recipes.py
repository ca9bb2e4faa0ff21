"""Configurations of Megatron-LM's functional tests: tests/functional_tests/test_cases/*/*/model_config.yaml."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the figures depend on; all else is the same in all of them."""

    family: Literal["gpt", "t5"]
    precision: Literal["fp16", "bf16"]
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    distributed_optimizer: bool = False
    """``--use-distributed-optimizer``, with ``--overlap-grad-reduce`` and ``--overlap-param-gather``."""

    @property
    def micro_batches(self) -> int:
        """Per step: a global batch of 32 sequences, four at a time, over what the data-parallel ranks share."""
        return 32 // 4 // (RANKS // (self.tensor_parallel * self.pipeline_parallel))


RANKS = 8
"""One node; the figures are those of the last rank."""
RECIPES = {
    "gpt-gpt3_mcore_tp1_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_param_gather": Recipe(
        family="gpt", precision="fp16", distributed_optimizer=True
    ),
    "gpt-gpt3_mcore_tp1_pp2": Recipe(family="gpt", precision="bf16", pipeline_parallel=2),
    "gpt-gpt3_mcore_tp1_pp4": Recipe(family="gpt", precision="bf16", pipeline_parallel=4),
    "gpt-gpt3_mcore_tp4_pp1_resume_torch_dist": Recipe(family="gpt", precision="fp16", tensor_parallel=4),
    "t5-t5_mcore_tp1_pp1_vp1_resume_torch": Recipe(family="t5", precision="bf16"),
    "t5-t5_mcore_tp4_pp1": Recipe(family="t5", precision="bf16", tensor_parallel=4),
    "t5-t5_mcore_tp4_pp1_resume_torch_dist": Recipe(family="t5", precision="bf16", tensor_parallel=4),
}
"""Name of the test case → recipe."""
