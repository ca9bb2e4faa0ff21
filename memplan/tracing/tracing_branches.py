"""Libraries that ask whether a tensor is fake, and then do something else than a real step does: they are told no.

transformers takes every fake tensor for a part of an export (``utils/import_utils.py`` ``is_tracing``, from 5.0 on) and
then writes attention masks out that a real step leaves away when it sees that nothing is masked: the step would hold
masks that no GPU holds, and attention would take a kernel that takes masks. What such a branch asks of values instead,
memplan answers as any other question of values.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import ModuleType

from memplan.seam.replace import Replacement, replaced
from memplan.tracing.late_imports import when_imported

_TRANSFORMERS = "transformers.utils.import_utils"
_QUESTION = f"{_TRANSFORMERS}.is_fake_tensor"


@contextmanager
def fakes_pass_for_real() -> Iterator[None]:
    """Let transformers take fake tensors for real ones while the context lasts; older versions never ask."""
    with ExitStack() as stack:

        def enter(module: ModuleType) -> None:
            # The module is not to be found by its path while it is being imported.
            stack.enter_context(replaced((Replacement(_QUESTION, lambda _: False, module),)))

        stack.enter_context(when_imported(_TRANSFORMERS, enter, nullcontext))
        yield
