"""Process groups of a program: the ranks that memplan plays are there already."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import distributed

from memplan.job.parallel import Parallel
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.recorder import Recorder

_OF_ONE_MACHINE = 8
"""GPUs of one machine, where there are more ranks than that and no launcher says. Chosen: as HGX machines have."""
ONE_RANK = "init_process_group() makes a group of one rank (torchrun before the program, or --parallel, says how many)"


@contextmanager
def played_ranks(recorder: Recorder, parallel: Parallel, environment: Mapping[str, str]) -> Iterator[None]:
    """Let a program set up its process group, which exists where ``--parallel`` or a launcher says how many ranks."""
    if not distributed.is_available():
        yield
        return
    begin, entering = distributed.init_process_group, False

    with ExitStack() as stack:

        def init_process_group(*args: Any, **kwargs: Any) -> None:
            nonlocal entering
            if entering:
                begin(*args, **kwargs)
            elif not distributed.is_initialized():
                # Importing what follows takes half a second, and not every torch has it.
                from memplan.tracing.sharding.world import world

                recorder.values.assume(ONE_RANK)
                entering = True
                stack.enter_context(world(Parallel(data="ddp"), 0, recorder))
                entering = False

        local = environment.get("LOCAL_WORLD_SIZE") or min(parallel.ranks, _OF_ONE_MACHINE)
        table = (
            Replacement("torch.distributed.init_process_group", init_process_group),
            Replacement("torch.distributed.barrier", _nothing),
        )
        stack.enter_context(replaced(table))
        if recorder.device.kind == "cuda":
            counts = ("torch.cuda.device_count", "torch.accelerator.device_count")
            stack.enter_context(replaced(Replacement(count, lambda: int(local)) for count in counts))
        yield


def _nothing(*_: Any, **__: Any) -> None:
    """Nobody else is there to wait for."""
