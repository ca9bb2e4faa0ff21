"""Configurations of Megatron-LM's functional tests: tests/functional_tests/test_cases/*/*/model_config.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from memplan.job.spec import DataDependent


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A GPT's."""

    layers: int = 12
    hidden: int = 512
    heads: int = 8
    length: int = 1024
    vocabulary: int = 50_304
    """GPT-2's 50,257 tokens; padded to a multiple of 128 per tensor-parallel rank later."""
    micro_batch: int = 4
    """Sequences."""
    global_batch: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the figures depend on; all else is the same in all of them."""

    family: Literal["gpt", "t5"] = "gpt"
    size: Size = Size()
    gpu: str = "h100-80g"
    precision: Literal["fp16", "bf16"] = "bf16"
    engine: bool = False
    """Are the layers Transformer Engine's?"""
    attention: Literal["auto", "unfused", "flash"] = "auto"
    """``--attention-backend``."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    expert_tensor_parallel: int | None = None
    """``--expert-tensor-parallel-size``; None as for all else."""
    optimizer_instances: int = 1
    """``--num-distributed-optimizer-instances``"""
    routing: DataDependent = "balanced"
    """How many tokens reach the rank's experts: what memplan takes where nobody says otherwise is the prediction. That
    was decided before any error was looked at; ``benchmarks/routing.py`` has the other ways, too."""
    scatters: bool = False
    """Was the figure last measured before October 2025, when tokens came back by ``scatter_add``? Asked after one of
    three had come out 1.7 % too high; the goldens' own history answers it."""
    chunks: int = 1
    """Parts of the model on every pipeline stage: ``--num-layers-per-virtual-pipeline-stage``."""
    distributed_optimizer: bool = False
    """``--use-distributed-optimizer``"""
    overlap_reduce: bool = False
    """``--overlap-grad-reduce``"""
    overlap_gather: bool = False
    """``--overlap-param-gather``"""
    tied: bool = True
    rope: bool = False
    attention_mask: bool = True
    """Does the loader make one?"""
    alloc_conf: str = ""
    """``PYTORCH_CUDA_ALLOC_CONF``"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of megatron-core's ``TransformerConfig``."""
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of its ``OptimizerConfig``."""

    @property
    def micro_batches(self) -> int:
        """Per step: the global batch over what the data-parallel ranks share."""
        ranks = RANKS // (self.tensor_parallel * self.pipeline_parallel * self.context_parallel)
        return self.size.global_batch // self.size.micro_batch // ranks


RANKS: Final = 8
"""One node; the figures are those of the last rank."""
