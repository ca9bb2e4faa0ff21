"""What the values of a job may be beyond their types, whoever gives them: options of a command, keys of a file."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from memplan.job.spec import InputSpec

MAX_COUNT = 2**31
"""Largest accepted batch size, sequence length and the like: beyond it PyTorch's 32-bit indexing ends."""
_COUNTS: Mapping[str, int] = {
    "batch_size": 1,
    "seq_len": 1,
    "grad_accum": 1,
    "loss_chunks": 1,
    "max_new_tokens": 1,
    "kv_block_size": 1,
    "data_workers": 0,
    "prefetch": 1,
    "replay_buffer": 0,
}
"""Counts → the least that each may be."""


def wrong_values(given: Mapping[str, Any], called: Callable[[str], str]) -> Iterator[str]:
    """A sentence for each value that cannot be.

    Args:
        given: Field of ``JobSpec`` → value of its type.
        called: Field → what the user calls it.
    """
    for name, least in _COUNTS.items():
        if name in given and not least <= given[name] <= MAX_COUNT:
            yield f"{called(name)} must be between {least} and {MAX_COUNT}, not {given[name]}"
    if "prefetch" in given and not given.get("data_workers"):
        # As DataLoader itself complains.
        yield f"{called('prefetch')} is for the workers of a DataLoader: give {called('data_workers')} too"
    if "kv_block_size" in given and given.get("mode") != "generate":
        yield f"{called('kv_block_size')} is for a cache: give {called('mode')} generate too"
    # NaN fails every comparison, so the conditions say what is right.
    if "clip_grad_norm" in given and not given["clip_grad_norm"] > 0:
        yield f"{called('clip_grad_norm')} must be a number above 0, not {given['clip_grad_norm']}"
    checkpoint = given.get("checkpoint", "none")
    if checkpoint not in ("none", "full") and not Path(checkpoint).is_file():
        yield f"{called('checkpoint')} must be none, full or a plan file; there is no file '{checkpoint}'"
    yield from _repeated(given.get("inputs", ()), called("inputs"))


def _repeated(inputs: Iterable[InputSpec], called: str) -> Iterator[str]:
    names = [given.name for given in inputs]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"{called} {name} is given twice"
