"""Pipeline stages: a model cut between its blocks, of which a rank keeps one piece, or several (interleaved schedule).

A stage runs the model's own ``forward``. What belongs to earlier stages is replaced by stand-ins that hand on shapes
without memory, the last of them what was received; the first block of the next stage ends the call. So whatever
``forward`` prepares for its blocks (masks, rotary angles) is prepared on every stage, as in a real pipeline.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from memplan.errors import UsageError
from memplan.job.defaults import caller, default_loss
from memplan.job.parallel import Parallel
from memplan.seam.pytree import tree_leaves
from memplan.tracing.sharding.chain import BlockChain, Signature
from memplan.tracing.sharding.stand_ins import Crossing, Earlier, Later, Left

STAGES_PER_RANK = 2
"""Of the interleaved schedule. Source: torchtitan, distributed/pipeline_parallel.py, its default for such schedules."""

Run = Callable[[nn.Module, Any], tuple[torch.Tensor, ...]]
"""``(model, micro-batch)`` → loss and the other tensors that a whole forward ends with."""


class Stage(nn.Module):
    """One piece of the model, as ``torch.distributed.pipelining`` runs it.

    In the model stand-ins, which share the crossing, replace the modules of other stages. The first stage receives
    nothing.
    """

    def __init__(
        self,
        model: nn.Module,
        crossing: Crossing,
        *,
        index: int,
        received: Signature | None,
        sent: tuple[Signature, ...],
    ) -> None:
        super().__init__()
        self.model = model
        self.index, self.received, self.sent = index, received, sent
        self.run: Run = running(caller(), default_loss, nullcontext)
        self._crossing = crossing

    def forward(self, *received: torch.Tensor, batch: Any) -> Any:
        """Run the piece: hidden states, or at the end loss and results."""
        self._crossing.received = received[0] if received else None
        try:
            return self.run(self.model, batch)
        except Left as left:
            return left.hidden
        finally:
            self._crossing.received = None


def split(
    model: nn.Module, chain: BlockChain, parallel: Parallel, rank: int
) -> tuple[nn.Module, tuple[tuple[str, ...], ...]]:
    """Cut a model into stages and keep those of one rank.

    The model is left as it is, and shares all modules that no stand-in replaces. Returned are the rank's ``Stage``, or
    a ``ModuleList`` of several; and the blocks of every stage.

    Raises:
        UsageError: There are fewer blocks than stages.
    """
    count = stage_count(parallel)
    if count > len(chain.blocks):
        what = f"{count} pipeline stages for {len(chain.blocks)} blocks"
        raise UsageError(what, where="--parallel pp", hint=f"take at most {len(chain.blocks)} stages")
    cuts = (0, *balanced_cuts(_weights(model, chain), count), len(chain.blocks))
    pieces = tuple(pairwise(cuts))
    mine = range(rank, count, parallel.pipeline)
    stages = [_stage(model, chain, index, pieces) for index in mine]
    named = tuple(chain.blocks[start:end] for start, end in pieces)
    return (stages[0] if len(stages) == 1 else nn.ModuleList(stages)), named


def running(
    call: Callable[[nn.Module, Any], Any],
    loss: Callable[[Any, Any], torch.Tensor],
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Run:
    """How a whole forward runs: ``(model, batch)`` → loss, then the other tensors of the model's output."""

    def run(model: nn.Module, batch: Any) -> tuple[torch.Tensor, ...]:
        with autocast():
            output = call(model, batch)
            value = loss(output, batch)
        rest = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf is not value]
        return value, *rest

    return run


def whole_models(model: nn.Module) -> list[nn.Module]:
    """The models that the stages of a rank run; the model itself where there is no pipeline."""
    return [stage.model for stage in model.modules() if isinstance(stage, Stage)] or [model]


def stage_count(parallel: Parallel) -> int:
    """Stages of the whole pipeline."""
    return parallel.pipeline * (STAGES_PER_RANK if parallel.schedule == "interleaved" else 1)


def balanced_cuts(weights: Sequence[int], count: int) -> tuple[int, ...]:
    """Where to cut a chain into ``count`` pieces of nearly equal weight, none empty: each but the first one's start.

    Weights are of what comes before the first block, of each block, and of what comes after the last.
    """
    first, *blocks, last = weights
    total, blocks_before, sums = first + sum(blocks) + last, first, [first]
    for block in blocks:
        blocks_before += block
        sums.append(blocks_before)
    cuts: list[int] = []
    for piece in range(1, count):
        least, most = (cuts[-1] if cuts else 0) + 1, len(blocks) - (count - piece)
        target = total * piece / count
        cuts.append(min(range(least, most + 1), key=lambda cut: abs(sums[cut] - target)))
    return tuple(cuts)


def _weights(model: nn.Module, chain: BlockChain) -> list[int]:
    def size(names: Sequence[str]) -> int:
        return sum(parameter.numel() for name in names for parameter in model.get_submodule(name).parameters())

    return [size(chain.before), *(size([block]) for block in chain.blocks), size(chain.after)]


def _stage(model: nn.Module, chain: BlockChain, index: int, pieces: Sequence[tuple[int, int]]) -> Stage:
    (start, end), is_last = pieces[index], index == len(pieces) - 1
    crossing = Crossing()
    earlier = [*(chain.before if start else ()), *chain.blocks[:start]]
    later = [*chain.blocks[end:], *(() if is_last else chain.after)]
    gate = chain.blocks[start - 1] if start else None
    stand_ins: dict[str, nn.Module] = {name: Later(model.get_submodule(name)) for name in later}
    for name in earlier:
        original, result = model.get_submodule(name), chain.results[name]
        stand_ins[name] = Earlier(original, crossing, result, hands_on=name == gate)
    return Stage(
        _with(model, "", stand_ins),
        crossing,
        index=index,
        received=chain.sent[start - 1] if start else None,
        sent=chain.ending if is_last else (chain.sent[end - 1],),
    )


def _with(module: nn.Module, name: str, replaced: Mapping[str, nn.Module]) -> nn.Module:
    """The module with some of those in it replaced; it shares everything else with the original."""
    if name in replaced:
        return replaced[name]
    if not any(not name or key.startswith(f"{name}.") for key in replaced):
        return module
    duplicate = copy.copy(module)
    children = module._modules.items()
    duplicate._modules = {
        key: child if child is None else _with(child, f"{name}.{key}" if name else key, replaced)
        for key, child in children
    }
    return duplicate
