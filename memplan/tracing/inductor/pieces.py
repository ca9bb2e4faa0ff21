"""Where graphs break inside a module: FSDP's hooks and DDP's run as they are, what lies between is compiled by itself.

Dynamo does not trace the hooks of ``fully_shard`` (torch/_dynamo/config.py ``skip_fsdp_hooks``): each module that is
sharded alone is a graph of its own, and so is what its parents compute between two of them. ``DistributedDataParallel``
leaves Dynamo around the model that it holds (``_inside_ddp_forward``).
"""

from collections.abc import Callable, Iterator
from types import MethodType

import torch
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

Compile = Callable[[Callable[..., object]], Callable[..., object]]
"""Makes a region of a function."""
WRAPPERS = (FullyShardedDataParallel, DistributedDataParallel)
"""Modules whose forward holds hooks alone, around that of the model inside."""
SHARDED = (FSDPModule, *WRAPPERS)
"""Modules that have hooks: of FSDP, torch's newer one and its older one, and of DDP."""
BUCKETS = (
    "torch.compile: the model inside DistributedDataParallel was compiled as one graph; torch cuts it at its buckets"
)
BETWEEN = "torch.compile: between modules that FSDP shards, each layer was compiled by itself and other ops were not"


def breaks(module: torch.nn.Module) -> bool:
    """Does a module hold any that FSDP or DDP wraps, itself included?"""
    return any(isinstance(each, SHARDED) for each in module.modules())


def compile_pieces(module: torch.nn.Module, compile_region: Compile) -> bool:
    """Let what lies between the hooks of a module that ``breaks`` run compiled.

    Returns whether anything of it stays eager that Dynamo would compile.
    """
    parts = list(_parts(module))
    if isinstance(module, FSDPModule) and not any(map(breaks, parts)):
        # Its own hooks run around ``forward``, which is called with the whole parameters.
        module.forward = compile_region(_method(module, module.forward))
        return False
    for part in parts:
        if not breaks(part):
            part._compiled_call_impl = compile_region(part._call_impl)
        elif part._compiled_call_impl is None:
            compile_pieces(part, compile_region)
    return not isinstance(module, WRAPPERS) or any(map(breaks, parts))


def _method(module: torch.nn.Module, forward: Callable[..., object]) -> Callable[..., object]:
    """A method of the module's, whatever object stands for its ``forward``."""

    def call(_: torch.nn.Module, *args: object, **kwargs: object) -> object:
        return forward(*args, **kwargs)

    return MethodType(call, module)


def _parts(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Children that are called: those of lists stand for them."""
    for child in module.children():
        if isinstance(child, torch.nn.ModuleList | torch.nn.ModuleDict):
            yield from _parts(child)
        else:
            yield child
