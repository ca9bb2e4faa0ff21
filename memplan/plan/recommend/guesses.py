"""Guesses of the effect of each change before it is traced: they decide the order of traces, nothing else.

Shares of bytes are about what traces of SmolLM2 135M and Llama 3.1 8B show, rather too good than too bad: a guess that
promises too much costs a trace, one that promises too little an answer. Factors on time are a choice of this project.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from memplan.job.parallel import Parallel
from memplan.lifetime.records import Category
from memplan.plan.recommend.changes import JobChange

PARAMETER, GRADIENT, STATE = Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE
ACTIVATION, TEMPORARY = Category.ACTIVATION, Category.TEMPORARY


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """The usual effect of a change."""

    leaves: Mapping[Category, float] = field(default_factory=dict)
    """Shares of bytes that it leaves, in every phase."""
    passes: Mapping[Category, float] = field(default_factory=dict)
    """Shares that it leaves in forward and backward alone."""
    step: Mapping[Category, float] = field(default_factory=dict)
    """Shares that it leaves in the optimizer's step alone."""
    slower: float = 1.0
    """Factor on the time of a sample."""


HALF = {PARAMETER: 0.5, GRADIENT: 0.5, STATE: 0.5}
ADAPTED = {GRADIENT: 0.03, STATE: 0.03}
GUESSES: Mapping[str, Guess] = {
    "--checkpoint full": Guess(passes={ACTIVATION: 0.2}, slower=1.3),
    "--checkpoint none": Guess(passes={ACTIVATION: 5.0}, slower=0.77),
    "--offload-activations": Guess(passes={ACTIVATION: 0.2}, slower=2.0),
    "--loss-chunks": Guess(passes={ACTIVATION: 0.85, TEMPORARY: 0.2}, step={ACTIVATION: 0.0}, slower=1.01),
    "--attention auto": Guess(passes={ACTIVATION: 0.7}, slower=0.9),
    "--optimizer-in-backward": Guess(leaves={GRADIENT: 0.1}, step={TEMPORARY: 0.2}),
    "--optimizer-impl fused": Guess(step={TEMPORARY: 0.0}, slower=0.99),
    "--optimizer adamw-8bit": Guess(leaves={STATE: 0.25}, step={TEMPORARY: 0.0}),
    "--optimizer paged-adamw-8bit": Guess(leaves={STATE: 0.0}, step={TEMPORARY: 0.0}, slower=1.02),
    "--optimizer adafactor": Guess(leaves={STATE: 0.0}, step={TEMPORARY: 0.2}),
    "--precision bf16": Guess(leaves={**HALF, ACTIVATION: 0.25, TEMPORARY: 0.6}, slower=0.5),
    "--precision bf16-mixed": Guess(leaves={ACTIVATION: 0.4}, slower=0.5),
    "--precision fp16": Guess(leaves={**HALF, ACTIVATION: 0.25, TEMPORARY: 0.6}, slower=0.5),
    "--precision fp16-mixed": Guess(leaves={ACTIVATION: 0.4}, slower=0.5),
    "--lora": Guess(leaves=ADAPTED, step={TEMPORARY: 0.05}, slower=0.8),
    "--quantize": Guess(leaves={PARAMETER: 0.25}, slower=1.2),
}
"""Beginning of what is typed → guess; the longest that fits counts. Further words of a change add theirs."""
DATA_SLOWER: Mapping[str, float] = {"zero1": 1.02, "zero2": 1.04, "zero3": 1.1, "fsdp1": 1.05, "fsdp2": 1.03}
"""Factor on time of the kinds of data parallelism, against none or copies."""
SLOWER_DEGREES = {"tensor": 1.25, "context": 1.15, "pipeline": 1.2, "expert": 1.1}
OFFLOADED_SLOWER = 3.0


def guess(change: JobChange, before: Parallel) -> Guess:
    """Return the expected effect of a change on a job."""
    if change.group == "parallel":
        return _of_layout(before, change.made_parallel(before))
    found = [_longest(words) for words in _options(change.text)]
    return Guess(
        leaves=_times(*(each.leaves for each in found)),
        passes=_times(*(each.passes for each in found)),
        step=_times(*(each.step for each in found)),
        slower=_product(each.slower for each in found),
    )


def _options(text: str) -> Iterator[str]:
    """``--lora r=16 --quantize nf4`` → each option with its value."""
    yield from ("--" + part.strip() for part in text.split("--") if part.strip())


def _longest(words: str) -> Guess:
    known = [name for name in GUESSES if words.startswith(name)]
    return GUESSES[max(known, key=len)] if known else Guess()


def _times(*shares: Mapping[Category, float]) -> dict[Category, float]:
    return {name: _product(each.get(name, 1.0) for each in shares) for each in shares for name in each}


def _product(factors: Iterator[float]) -> float:
    result = 1.0
    for factor in factors:
        result *= factor
    return result


def _of_layout(before: Parallel, after: Parallel) -> Guess:
    """State goes by the ranks that share it; activations by those that share a sample."""
    old, new = _held(before), _held(after)
    samples = (before.tensor * before.context * before.pipeline) / (after.tensor * after.context * after.pipeline)
    return Guess(
        leaves={name: new[name] / old[name] for name in new if old[name]},
        passes={
            ACTIVATION: (before.tensor * before.context) / (after.tensor * after.context),
            PARAMETER: _with_gathered(after) / _with_gathered(before),
        },
        slower=samples * _overhead(after) / _overhead(before),
    )


def _held(parallel: Parallel) -> dict[Category, float]:
    """Share of the whole model's state on the device of one rank; a layer that is gathered counts with activations."""
    whole = 1.0 / (parallel.tensor * parallel.pipeline)
    stage = {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp1": 3, "fsdp2": 3}.get(parallel.data, 0)
    share = [whole / parallel.shards if stage >= least else whole for least in (3, 2, 1)]
    held = dict(zip((PARAMETER, GRADIENT, STATE), share, strict=True))
    if parallel.offload:
        held |= {STATE: 0.0} | ({PARAMETER: 0.0, GRADIENT: 0.0} if stage == 3 else {})
    return held


def _with_gathered(parallel: Parallel) -> float:
    """Factor on a rank's own parameters where they stay gathered from forward to backward, at half their size."""
    if parallel.data != "fsdp2" or parallel.reshard is True:
        return 1.0
    return 1.0 + 0.5 * parallel.shards / (parallel.reshard or 1)


def _overhead(parallel: Parallel) -> float:
    factor = DATA_SLOWER.get(parallel.data, 1.0) * (OFFLOADED_SLOWER if parallel.offload else 1.0)
    # What crosses the network between nodes is what copies of the state are for.
    for name, slower in SLOWER_DEGREES.items():
        factor *= slower if getattr(parallel, name) > 1 else 1.0
    return factor
