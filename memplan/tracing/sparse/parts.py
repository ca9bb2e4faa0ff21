"""Sparse tensors and the tensors that they are made of.

A fake sparse tensor holds its indices and values as a real one does, and shares their storages with whoever else has
them. What torch's shape functions lose of it are the elements: all that they make of a sparse tensor has none. So
the ops are taken apart here, into what their kernels do with the parts.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from memplan.seam.fake import FakeTensor, detect_fake_mode
from memplan.seam.modes import DisableTorchDispatch

aten = torch.ops.aten

ROWS = frozenset({torch.sparse_csr, torch.sparse_bsr})
"""Compressed layouts whose rows are compressed."""
COMPRESSED = ROWS | {torch.sparse_csc, torch.sparse_bsc}
"""Layouts with one compressed dimension."""
SPARSE = COMPRESSED | {torch.sparse_coo}
"""All sparse layouts."""
OTHER_WAY = {
    torch.sparse_csr: torch.sparse_csc,
    torch.sparse_csc: torch.sparse_csr,
    torch.sparse_bsr: torch.sparse_bsc,
    torch.sparse_bsc: torch.sparse_bsr,
}
"""The layout of the transposed tensor that has the same parts."""


class Compressed(NamedTuple):
    """Parts of a compressed tensor."""

    pointers: torch.Tensor
    """Where each row (or column) begins."""
    plain: torch.Tensor
    """Indices into the other dimension."""
    values: torch.Tensor
    """The elements, or blocks of them."""


def is_sparse(value: Any) -> bool:
    """Is this a tensor of a sparse layout?"""
    return isinstance(value, torch.Tensor) and value.layout in SPARSE


def is_coo(value: Any) -> bool:
    """Is this a tensor with a list of coordinates?"""
    return isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo


def any_sparse(args: Sequence[Any]) -> bool:
    """Is one of a call's arguments sparse, or of a list of tensors the first?"""
    for value in args:
        if isinstance(value, torch.Tensor):
            if value.layout in SPARSE:
                return True
        elif isinstance(value, list | tuple) and value and is_sparse(value[0]):
            return True
    return False


def coo_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices and values of a COO tensor."""
    return aten._indices.default(tensor), aten._values.default(tensor)


def compressed_parts(tensor: torch.Tensor) -> Compressed:
    """Parts of a compressed tensor."""
    if tensor.layout in ROWS:
        return Compressed(
            aten.crow_indices.default(tensor), aten.col_indices.default(tensor), aten.values.default(tensor)
        )
    return Compressed(aten.ccol_indices.default(tensor), aten.row_indices.default(tensor), aten.values.default(tensor))


def storages_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The parts as bare tensors: what is asked of them passes by all modes."""
    with DisableTorchDispatch():
        return list(coo_parts(tensor) if is_coo(tensor) else compressed_parts(tensor))


def make_coo(
    indices: torch.Tensor, values: torch.Tensor, size: Sequence[int], *, coalesced: bool = False
) -> torch.Tensor:
    """A COO tensor of these parts.

    Args:
        indices: One row for each sparse dimension.
        values: One element, or dense tensor, for each column of the indices.
        size: Of the whole.
        coalesced: Is every index there once, and in order?
    """
    made: torch.Tensor = aten._sparse_coo_tensor_with_dims_and_tensors.default(
        indices.shape[0],
        len(size) - indices.shape[0],
        size,
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        is_coalesced=coalesced,
    )
    return made


def lifted(part: torch.Tensor) -> torch.Tensor:
    """A real tensor (of NumPy's memory, as ``from_numpy`` gives it) as a fake one; a fake one as it is."""
    fake: torch.Tensor = part if isinstance(part, FakeTensor) else aten.lift_fresh.default(part)
    mode = None if isinstance(fake, FakeTensor) else detect_fake_mode()
    if mode is not None:
        # Beside a GPU that is played, what has data on the host keeps it; what is made of it here is for shapes alone.
        fake = mode.from_tensor(fake)
    return fake


def make_compressed(parts: Compressed, size: Sequence[int], layout: torch.layout) -> torch.Tensor:
    """A compressed tensor of these parts; torch's own constructor refuses fake ones."""
    mode = next(part.fake_mode for part in parts if isinstance(part, FakeTensor))
    with DisableTorchDispatch():
        bare = aten._sparse_compressed_tensor_unsafe.default(
            *(_bare(part) for part in parts), size, dtype=parts.values.dtype, layout=layout, device="meta"
        )
        return FakeTensor(mode, bare, torch.device("cpu"))


def _bare(part: torch.Tensor) -> torch.Tensor:
    bare = torch.empty(0, dtype=part.dtype, device="meta")
    return bare.set_(part.untyped_storage(), part.storage_offset(), part.shape, part.stride())


def replace(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Let a sparse tensor have the parts of another, as ops do that work in place."""
    tensor.data = other
    return tensor
