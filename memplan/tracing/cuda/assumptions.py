"""What CUDA semantics take for granted where only the real library or the real values would tell."""

from collections.abc import Iterable

ASSUMPTIONS = {
    "aten.convolution.default": "cuDNN's convolutions take the likely of the work spaces that its algorithms need (on"
    " an H100 what was measured with cuDNN 9.19; elsewhere none for fp32); the interval holds none and the most",
    "aten._cudnn_rnn.default": "cuDNN's RNN takes work space as 238 layers did on an H200 (cuDNN 9.19; elsewhere none);"
    " the interval holds none and three times as much; its weights lie in one buffer",
    "aten.cudnn_batch_norm.default": "cuDNN's batch norm reserves nothing for backward",
}
"""Op name → a sentence for the report."""


def assumptions_of(names: Iterable[str]) -> tuple[str, ...]:
    """The assumptions behind a trace of ops of these names (``aten.mm.default``), in the order of ``ASSUMPTIONS``."""
    ran = frozenset(names)
    return tuple(sentence for name, sentence in ASSUMPTIONS.items() if name in ran)
