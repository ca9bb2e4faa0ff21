"""The chain of blocks of a model, found by one forward: what each block hands to the next, and what comes around them.

Only plain chains are cut into pipeline stages: every block's first tensor is the one that the block before returned,
and no other tensor that is passed to it takes a gradient back.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from memplan.errors import UsageError
from memplan.runtime.checkpoint.blocks import repeated_blocks
from memplan.seam.pytree import tree_leaves, tree_map


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What must be known of a tensor to receive it."""

    shape: tuple[int, ...]
    """Of one rank's part of one micro-batch."""
    dtype: torch.dtype
    """Element type."""
    requires_grad: bool
    """Does a gradient go back?"""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Signature":
        """The signature of a tensor."""
        return cls(shape=tuple(tensor.shape), dtype=tensor.dtype, requires_grad=tensor.requires_grad)

    def example(self) -> torch.Tensor:
        """A tensor without memory that has this signature."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta").requires_grad_(self.requires_grad)


@dataclass(slots=True, kw_only=True)
class BlockChain:
    """Blocks in order, and the modules around them that have parameters."""

    blocks: tuple[str, ...]
    """Qualified names, in order of execution."""
    before: list[str] = field(default_factory=list)
    """Outermost other modules that run before the first block: embeddings."""
    after: list[str] = field(default_factory=list)
    """Those that run after the last block, or never: last norm, head."""
    results: dict[str, Any] = field(default_factory=dict)
    """Module → what it returned, tensors as signatures; of the blocks and of ``before``."""
    sent: list[Signature] = field(default_factory=list)
    """What each block returned as its first tensor."""
    ending: tuple[Signature, ...] = ()
    """Results of the whole run."""


def first_tensor(value: Any) -> torch.Tensor | None:
    """The first tensor in nested arguments or results: the hidden states, by convention."""
    return next((leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)), None)


def find_chain(model: nn.Module, run: Callable[[], Iterable[torch.Tensor]]) -> BlockChain:
    """Run the model once on one micro-batch, for loss and other results, and see its chain.

    Raises:
        UsageError: The model has no chain of blocks.
    """
    chain = BlockChain(blocks=_blocks(model))
    seen = _Seen(model, chain)
    with seen.watching():
        chain.ending = tuple(Signature.of(tensor) for tensor in run())
    if seen.count != len(chain.blocks):
        raise _no_chain(model, f"of {len(chain.blocks)} blocks {seen.count} ran in order")
    chain.after = [name for name in seen.others if name not in chain.before]
    return chain


def _blocks(model: nn.Module) -> tuple[str, ...]:
    names = repeated_blocks(model)
    if not names and isinstance(model, nn.Sequential):
        names = tuple(name for name, _ in model.named_children())
    if len(names) < 2:
        raise _no_chain(model, "it has no repeated blocks")
    return names


class _Seen:
    """Watches one forward, by hooks."""

    def __init__(self, model: nn.Module, chain: BlockChain) -> None:
        self.count = 0
        self.others = dict(_others(model, "", chain.blocks))
        self._model, self._chain = model, chain
        self._hidden: torch.Tensor | None = None

    def watching(self) -> ExitStack:
        """Hooks on every block and every other module with parameters, taken off at the end."""
        stack = ExitStack()
        for name in self._chain.blocks:
            block = self._model.get_submodule(name)
            enters = block.register_forward_pre_hook(self._enters(name), with_kwargs=True)
            for hook in (enters, block.register_forward_hook(self._leaves(name))):
                stack.callback(hook.remove)
        for name, module in self.others.items():
            stack.callback(module.register_forward_hook(self._around(name)).remove)
        return stack

    def _enters(self, name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, kwargs: Any) -> None:
            expected = self._chain.blocks[self.count] if self.count < len(self._chain.blocks) else None
            if name != expected:
                raise _no_chain(self._model, f"{name} runs out of order")
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            if self._hidden is not None and (not tensors or tensors[0] is not self._hidden):
                raise _no_chain(self._model, f"{name} does not start from what the block before it returned")
            extra = [tensor for tensor in tensors[1:] if tensor.requires_grad and tensor is not tensors[0]]
            if extra:
                raise _no_chain(self._model, f"{name} takes {len(extra) + 1} tensors that require gradients")

        return hook

    def _leaves(self, name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, result: Any) -> None:
            self.count += 1
            self._hidden = first_tensor(result)
            if self._hidden is None:
                raise _no_chain(self._model, f"{name} returns no tensor")
            self._chain.sent.append(Signature.of(self._hidden))
            self._chain.results[name] = _signatures(result)

        return hook

    def _around(self, name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, result: Any) -> None:
            if self.count == 0 and name not in self._chain.before:
                self._chain.before.append(name)
                self._chain.results[name] = _signatures(result)

        return hook


def _signatures(result: Any) -> Any:
    return tree_map(lambda leaf: Signature.of(leaf) if isinstance(leaf, torch.Tensor) else leaf, result)


def _others(module: nn.Module, name: str, blocks: tuple[str, ...]) -> Iterator[tuple[str, nn.Module]]:
    """Outermost modules with parameters that neither are blocks nor hold any."""
    for key, child in module.named_children():
        path = f"{name}.{key}" if name else key
        if path in blocks:
            continue
        if any(block.startswith(f"{path}.") for block in blocks):
            yield from _others(child, path, blocks)
        elif next(child.parameters(), None) is not None:
            yield path, child


def _no_chain(model: nn.Module, why: str) -> UsageError:
    return UsageError(
        f"{type(model).__name__} cannot be cut into pipeline stages: {why}",
        where="--parallel pp",
        hint="pipelines need one chain of blocks that pass hidden states on; use fsdp or tp",
    )
