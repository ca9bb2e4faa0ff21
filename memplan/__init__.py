"""memplan: plan the memory of a PyTorch step before renting a GPU."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memplan.api.cells import on as on
    from memplan.api.checks import lightning_check as lightning_check
    from memplan.api.checks import transformers_check as transformers_check
    from memplan.api.estimates import estimate as estimate
    from memplan.api.estimates import gpus as gpus
    from memplan.api.plans import batch as batch
    from memplan.api.plans import checkpoint_plan as checkpoint_plan
    from memplan.api.plans import recommend as recommend
    from memplan.api.plans import reuse_plan as reuse_plan
    from memplan.api.plans import trace as trace
    from memplan.plan.reuse.arena import plan_arena as plan_arena
    from memplan.plan.reuse.arena import plan_graph as plan_graph
    from memplan.runtime.adaptive.finder import find_batch as find_batch
    from memplan.runtime.adaptive.micro_batch import AutoMicroBatch as AutoMicroBatch
    from memplan.runtime.checkpoint.apply import apply as apply
    from memplan.runtime.leaks.detector import LeakDetector as LeakDetector
    from memplan.runtime.metrics.exporter import export_metrics as export_metrics
    from memplan.runtime.monitor.monitor import MemoryMonitor as MemoryMonitor
    from memplan.runtime.pools.pool import TensorPool as TensorPool
    from memplan.runtime.pools.staging import StagingPool as StagingPool
    from memplan.runtime.pools.store.store import BufferStore as BufferStore
    from memplan.runtime.profile.profile import profile as profile
    from memplan.runtime.web.server import serve_dashboard as serve_dashboard

_HOMES = {
    "on": "memplan.api.cells",
    "lightning_check": "memplan.api.checks",
    "transformers_check": "memplan.api.checks",
    "estimate": "memplan.api.estimates",
    "gpus": "memplan.api.estimates",
    "batch": "memplan.api.plans",
    "checkpoint_plan": "memplan.api.plans",
    "recommend": "memplan.api.plans",
    "reuse_plan": "memplan.api.plans",
    "trace": "memplan.api.plans",
    "MemoryMonitor": "memplan.runtime.monitor.monitor",
    "serve_dashboard": "memplan.runtime.web.server",
    "export_metrics": "memplan.runtime.metrics.exporter",
    "BufferStore": "memplan.runtime.pools.store.store",
    "StagingPool": "memplan.runtime.pools.staging",
    "TensorPool": "memplan.runtime.pools.pool",
    "LeakDetector": "memplan.runtime.leaks.detector",
    "AutoMicroBatch": "memplan.runtime.adaptive.micro_batch",
    "apply": "memplan.runtime.checkpoint.apply",
    "find_batch": "memplan.runtime.adaptive.finder",
    "plan_arena": "memplan.plan.reuse.arena",
    "plan_graph": "memplan.plan.reuse.arena",
    "profile": "memplan.runtime.profile.profile",
}
"""Name → module. Each is imported when it is asked for: nearly all need torch."""

__all__ = [
    "AutoMicroBatch",
    "BufferStore",
    "LeakDetector",
    "MemoryMonitor",
    "StagingPool",
    "TensorPool",
    "apply",
    "batch",
    "checkpoint_plan",
    "estimate",
    "export_metrics",
    "find_batch",
    "gpus",
    "lightning_check",
    "on",
    "plan_arena",
    "plan_graph",
    "profile",
    "recommend",
    "reuse_plan",
    "serve_dashboard",
    "trace",
    "transformers_check",
]


def __getattr__(name: str) -> Any:
    """What a training process or a notebook imports."""
    if name == "__version__":
        from importlib.metadata import version

        return version("memplan")
    if name in _HOMES:
        # Kept: a region in a hot loop asks for ``memplan.profile`` each time.
        return globals().setdefault(name, getattr(import_module(_HOMES[name]), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
