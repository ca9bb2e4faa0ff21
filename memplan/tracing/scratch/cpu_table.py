"""Scratch of CPU kernels, op by op.

Truth here is what torch.profiler's memory events report: everything that passes through PyTorch's CPU allocator, which
oneDNN's reordered tensors and scratchpads do too. ``benchmarks/cpu_truth.py`` holds the table against real runs,
``benchmarks/cpu_verdicts.py`` against every op of torch's own samples.

Every op has a verdict: a rule, *plain* (it was run and takes nothing, ``cpu_plain``), or *not examined*. What is not
examined is named in the report and widens the interval by a bound.
"""

from collections.abc import Iterable, Iterator, Mapping

import torch

from memplan.seam.pytree import tree_leaves
from memplan.tracing.scratch import (
    cpu_attention,
    cpu_convolution,
    cpu_convolution_backward,
    cpu_images,
    cpu_kernels,
    cpu_linear_algebra,
    cpu_matmul,
    cpu_mixed_types,
    cpu_pointwise,
    cpu_recurrent,
    cpu_scatter,
    cpu_spectral,
    cpu_transposition,
)
from memplan.tracing.scratch.cpu_plain import is_plain
from memplan.tracing.scratch.cpu_shapes import nbytes
from memplan.tracing.scratch.rules import Call, Rule, RuleTable, Scratch, Script
from memplan.tracing.sparse.table import NATIVE

CPU_RULES: RuleTable = {
    **cpu_attention.RULES,
    **cpu_mixed_types.RULES,
    **cpu_kernels.RULES,
    **cpu_images.RULES,
    **cpu_matmul.RULES,
    **cpu_pointwise.RULES,
    **cpu_convolution.RULES,
    **cpu_convolution_backward.RULES,
    **cpu_recurrent.RULES,
    **cpu_scatter.RULES,
    **cpu_spectral.RULES,
    **cpu_linear_algebra.RULES,
    **cpu_transposition.RULES,
}
"""Op name → rule."""

MOST_TIMES, MOST_BYTES = 16, 64 * 1024
"""An op that nobody examined is taken to hold so many times its operands and results, and so many bytes, at most. Of
those measured before they had a rule, the largest held 13 times as much (``linalg_matrix_exp``)."""


def unexamined(call: Call) -> Script:
    """The bound on an op that has no verdict."""
    leaves = tree_leaves((call.args, dict(call.kwargs), call.out))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided]
    most = MOST_TIMES * sum(nbytes(tensor) for tensor in tensors) + MOST_BYTES
    return Script(after=(Scratch("alloc", "not examined", 0, most=most),))


class Verdicts(Mapping[str, Rule]):
    """The rule for every op but the plain ones.

    Args:
        rules: Those that are known; all that is neither here nor plain is not examined.
    """

    def __init__(self, rules: RuleTable) -> None:
        self._rules = rules

    def __getitem__(self, name: str) -> Rule:
        """The rule of an op.

        Raises:
            KeyError: The op is plain.
        """
        rule = self._rules.get(name)
        if rule is None and is_plain(name):
            raise KeyError(name)
        return rule or unexamined

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)


CPU_VERDICTS: RuleTable = Verdicts(CPU_RULES)
"""What the recorder asks."""

_BOUNDED = {
    "aten.linalg_matrix_exp.default": "matrix_exp: one matrix takes the highest degree, norms in a batch are alike"
}
"""Op with a rule that bounds only what it takes → what was taken for granted."""


def assumptions(names: Iterable[str]) -> tuple[str, ...]:
    """What was taken for granted of the ops that ran."""
    ran = frozenset(names)
    return tuple(sentence for name, sentence in _BOUNDED.items() if name in ran)


def not_examined(names: Iterable[str]) -> tuple[str, ...]:
    """Which of the ops that ran have no verdict, each once, sorted; reading parts of a sparse tensor takes nothing."""
    ran = frozenset(names) - NATIVE
    return tuple(sorted(name for name in ran if CPU_VERDICTS.get(name) is unexamined))
