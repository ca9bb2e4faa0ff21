"""Everything that memplan replaces in other libraries, by path."""

from memplan.seam.patch import Patch
from memplan.seam.patches import compiled, cuda, libraries, sharding, world

PATCHES: dict[str, Patch] = {
    patch.path: patch
    for table in (world.PATCHES, cuda.PATCHES, compiled.PATCHES, sharding.PATCHES, libraries.PATCHES)
    for patch in table
}
"""Path → patch. Kernels of ``torch.ops.aten`` are in ``ops``."""
