"""All rows: what memplan replaces, and what it uses."""

from memplan.seam import autograd, compiler, distributed, fake, functorch, memory, modes, operators, pytree, tensors
from memplan.seam.patch import Patch
from memplan.seam.patches import PATCHES
from memplan.seam.patches.ops import OPS

LENDERS = (autograd, compiler, distributed, fake, functorch, memory, modes, operators, pytree, tensors)
"""Modules that hand names out."""

ROWS: tuple[Patch, ...] = (*PATCHES.values(), *OPS.values(), *(row for lender in LENDERS for row in lender.USED))
"""The table. Kernels of ops that every supported torch has stand where they are written (``tracing``)."""
