"""What CUDA semantics take for granted where only the real library or the real values would tell."""

from collections.abc import Iterable

ASSUMPTIONS = {
    "aten.convolution.default": "cuDNN's convolutions take the likely of the work spaces that its algorithms need; the"
    " interval holds none and the most",
    "aten._cudnn_rnn.default": "cuDNN's RNN keeps the least that backward needs, and its weights lie in one buffer",
    "aten.cudnn_batch_norm.default": "cuDNN's batch norm reserves nothing for backward",
}
"""Op name → a sentence for the report."""


def assumptions_of(names: Iterable[str]) -> tuple[str, ...]:
    """The assumptions behind a trace.

    Args:
        names: Names of the ops that ran (``aten.mm.default``).

    Returns:
        Sentences in the order of ``ASSUMPTIONS``.
    """
    ran = frozenset(names)
    return tuple(sentence for name, sentence in ASSUMPTIONS.items() if name in ran)
