"""Data loaders run for real: what they hand over are tensors with data, on the host, as in a real run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memplan.seam.modes import disable_current_modes
from memplan.seam.patches.world import LOADER_FETCH
from memplan.seam.replace import Replacement, attribute, replaced

_ITER = "torch.utils.data.DataLoader.__iter__"


@contextmanager
def real_loaders() -> Iterator[None]:
    """Let loaders fetch, transform and collate outside of the fake world."""
    fetch, begin = attribute(LOADER_FETCH), attribute(_ITER)

    def real_fetch(loader: Any) -> Any:
        with disable_current_modes():
            return fetch(loader)

    def real_begin(loader: Any) -> Any:
        with disable_current_modes():
            return begin(loader)

    with replaced((Replacement(LOADER_FETCH, real_fetch), Replacement(_ITER, real_begin))):
        yield
