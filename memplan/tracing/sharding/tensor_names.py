"""Tensor parallelism of any model whose linear layers bear well-known names, as torchtitan plans it for Llama.

In every attention and feed-forward module the layers that lead in are cut by columns and the one that leads out by
rows. Where the blocks have nothing else than these and norms, ranks share the sequence between them (sequence
parallelism), embedding and head share the vocabulary.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from memplan.errors import UsageError
from memplan.runtime.checkpoint.blocks import repeated_blocks

_INTO_ATTENTION = ("q_proj", "k_proj", "v_proj", "wq", "wk", "wv", "query", "key", "value", "to_q", "to_k", "to_v")
_INTO_FEED_FORWARD = ("gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "fc1", "c_fc", "lin1", "linear1")
_FUSED = ("qkv", "qkv_proj", "Wqkv", "c_attn", "in_proj", "query_key_value", "dense_h_to_4h")
COLUMNS = frozenset((*_INTO_ATTENTION, *_INTO_FEED_FORWARD, *_FUSED, "q", "k", "v", "up", "gate"))
"""Names of layers that lead into attention or feed-forward: Llama of Meta and of transformers, GPT-2, BERT, ViT,
diffusers, torch's own transformer layers."""
ROWS = frozenset(("o_proj", "out_proj", "wo", "c_proj", "w2", "down_proj", "fc2", "lin2", "linear2", "down", "o"))
"""Names of layers that lead out."""
_QUERY_HEADS = ("n_heads", "n_head", "num_heads", "nhead", "num_attention_heads", "n_local_heads")
_KEY_HEADS = ("n_kv_heads", "n_kv_head", "num_kv_heads", "num_key_value_heads", "n_local_kv_heads")
HEAD_COUNTS = (*_QUERY_HEADS, *_KEY_HEADS)
"""Attributes of an attention module that count heads, which every rank has its part of (torch's tensor-parallel
tutorial divides them the same way)."""


@dataclass(frozen=True, slots=True)
class _Group:
    """An attention or feed-forward module with layers to share."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]


def by_names(model: nn.Module, mesh: DeviceMesh, *, sequence: bool) -> str:
    """Share the layers that the tables know, in place; returns a sentence that says what was done.

    ``sequence``: they may share the sequence as well.

    Raises:
        UsageError: No layer is known, or some cannot be shared evenly.
    """
    groups = list(_groups(model))
    if not groups:
        raise UsageError(
            f"{type(model).__name__} has no layers whose names tell how to share them",
            where="--parallel tp",
            hint="define parallelize(model, mesh) in the target, which shares them over mesh['tp']",
        )
    for group in groups:
        _check(model, group, mesh.size())
    frame = _Frame.of(model, groups) if sequence else None
    for group in groups:
        _share(model, group, mesh, sequence=frame is not None)
    if frame is None:
        return f"tensor parallelism of {len(groups)} modules by their layers' names; activations between them are whole"
    frame.share(model, mesh)
    return f"tensor and sequence parallelism of {len(groups)} modules by their layers' names; logits are whole"


def _groups(model: nn.Module) -> Iterator[_Group]:
    for name, module in model.named_modules():
        linear = [key for key, child in module.named_children() if isinstance(child, nn.Linear)]
        columns, rows = (tuple(key for key in linear if key in table) for table in (COLUMNS, ROWS))
        if columns and rows:
            yield _Group(name, columns, rows)


def _check(model: nn.Module, group: _Group, ranks: int) -> None:
    module = model.get_submodule(group.name)
    sizes = {key: getattr(module, key).out_features for key in group.columns}
    sizes |= {key: getattr(module, key).in_features for key in group.rows}
    sizes |= {key: getattr(module, key) for key in HEAD_COUNTS if isinstance(getattr(module, key, None), int)}
    for key, size in sizes.items():
        if size % ranks:
            raise UsageError(
                f"{ranks} ranks cannot share {group.name}.{key} evenly: {size}",
                where="--parallel tp",
                hint=f"take a tp that divides {size}",
            )


def _share(model: nn.Module, group: _Group, mesh: DeviceMesh, *, sequence: bool) -> None:
    module = model.get_submodule(group.name)
    styles: dict[str, ParallelStyle] = {key: ColwiseParallel() for key in group.columns}
    between = Shard(1) if sequence else Replicate()
    styles |= {key: RowwiseParallel(output_layouts=between) for key in group.rows}
    parallelize_module(module, mesh, styles, src_data_rank=None)
    for key in HEAD_COUNTS:
        if isinstance(getattr(module, key, None), int):
            setattr(module, key, getattr(module, key) // mesh.size())
    if sequence:
        module.register_forward_pre_hook(_gathering(mesh), with_kwargs=True)


def _gathering(mesh: DeviceMesh) -> Any:
    """Gather the sequence of the first tensor, once for all layers that read it.

    ``PrepareModuleInput`` wants to know how many arguments there are.
    """

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        hidden, *rest = args or kwargs.values()
        if not isinstance(hidden, DTensor):
            hidden = DTensor.from_local(hidden, mesh, [Shard(1)], run_check=False)
        whole = hidden.redistribute(placements=[Replicate()])
        if args:
            return (whole, *rest), dict(kwargs)
        return (), dict(zip(kwargs, (whole, *rest), strict=True))

    return hook


@dataclass(frozen=True, slots=True)
class _Frame:
    """What is around the groups of a model that can share its sequence."""

    embedding: str
    norms: tuple[str, ...]
    head: str

    @classmethod
    def of(cls, model: nn.Module, groups: list[_Group]) -> "_Frame | None":
        """One embedding, blocks of groups and norms, and a linear head; None where there is anything else."""
        inside = [group.name for group in groups]
        others = {
            name: module
            for name, module in model.named_modules()
            if next(module.parameters(recurse=False), None) is not None
            and not any(name.startswith(f"{group}.") for group in inside)
        }
        blocks = repeated_blocks(model)
        embeddings = [name for name, module in others.items() if isinstance(module, nn.Embedding)]
        heads = [name for name, module in others.items() if isinstance(module, nn.Linear)]
        norms = tuple(name for name, module in others.items() if "Norm" in type(module).__name__)
        whole = {*embeddings, *heads, *norms} == set(others) and len(embeddings) == len(heads) == 1
        contained = all(any(group.startswith(f"{block}.") for block in blocks) for group in inside)
        return cls(embeddings[0], norms, heads[0]) if whole and contained else None

    def share(self, model: nn.Module, mesh: DeviceMesh) -> None:
        """Share the vocabulary of embedding and head, and the sequence of the norms."""
        styles: dict[str, ParallelStyle] = {name: SequenceParallel() for name in self.norms}
        styles[self.embedding] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        styles[self.head] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
        parallelize_module(model, mesh, styles, src_data_rank=None)
