"""Scratch of CPU kernels, op by op.

Truth here is what torch.profiler's memory events report: everything that passes through PyTorch's CPU allocator, which
oneDNN's reordered tensors and scratchpads do too. ``benchmarks/cpu_truth.py`` holds the table against real runs.
"""

from memplan.trace.scratch import (
    cpu_attention,
    cpu_convolution,
    cpu_convolution_backward,
    cpu_kernels,
    cpu_matmul,
    cpu_recurrent,
)
from memplan.trace.scratch.rules import RuleTable

CPU_RULES: RuleTable = {
    **cpu_attention.RULES,
    **cpu_kernels.RULES,
    **cpu_matmul.RULES,
    **cpu_convolution.RULES,
    **cpu_convolution_backward.RULES,
    **cpu_recurrent.RULES,
}
"""Op name → rule; ops without one take no scratch worth counting."""
