"""What ``torch.distributed._tools.sac_ilp`` plans for a model, and that plan put on the model.

PyTorch's own tests of the tool show the way: a memory tracker, a runtime estimator and a SAC estimator run steps under
``FakeTensorMode``, and ``sac_milp`` answers with the share of activations that each module should discard. Nothing in
PyTorch applies that answer; here the tool's per-module solver makes the share a list of saved ops, and PyTorch's
selective checkpointing follows it.

Three things are done for the tool, without which it does not run here: its roofline needs CUDA, so it gets the rates
that memplan assumes of a CPU; modules without a backward, such as rotary embeddings, get figures of their forward
(``KeyError: PRE_BW`` otherwise, as its tests do it for ``POST_BW``); and packages ``pulp`` and ``pwlf`` are needed.
"""
# ruff: noqa: SLF001 - PyTorch names its tools so.

import copy
import json
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from checkpoint_child import spec_of
from checkpoint_policies import ATTENTION, without_cache
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.ilp_utils import Graph, ModuleInfo, aggregate_stats, parse_module_info
from torch.distributed._tools.mem_tracker import MemTracker, _ModState
from torch.distributed._tools.runtime_estimator import RuntimeEstimator
from torch.distributed._tools.sac_estimator import SACEstimator
from torch.distributed._tools.sac_ilp import get_optimal_checkpointing_policy_per_module, sac_milp
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from memplan.job.defaults import caller, default_loss
from memplan.job.load import load_source
from memplan.job.spec import JobSpec
from memplan.lifetime.roofline import UNKNOWN_BANDWIDTH, UNKNOWN_FLOPS

MODE = "operator-level-cost-model"
Saves = dict[str, list[tuple[str, bool]]]
"""Module → every op of its forward, in order, and whether its result is saved."""


def sac_planned(job: dict[str, Any], out: Path, budget: int) -> dict[str, Any]:
    """Ask the tool for a plan.

    Args:
        job: As ``checkpoint_child.spec_of``, for the CPU.
        out: Where the plan goes, a JSON object of ``Saves``.
        budget: Peak in bytes at most.

    Returns:
        Fields of a row of ``checkpoint_models``; without a promise where it finds no plan.
    """
    spec = spec_of(job)
    started = time.perf_counter()
    with patch.object(RuntimeEstimator, "_roofline_estimate", _roofline), redirect_stdout(StringIO()):
        graph, estimator = _statistics(spec)
    traced = time.perf_counter()
    shares, _, peak = sac_milp(graph, memory_budget=budget / 2**30)
    saves: Saves = {name.partition(".")[2]: _saves(estimator, name, share) for name, share in shares.items()}
    out.write_text(json.dumps(saves))
    seconds = {"trace_seconds": traced - started, "solve_seconds": time.perf_counter() - traced}
    answer = {"result": "infeasible"} if peak < 0 else {"result": "feasible", "promise": peak}
    return answer | {"budget": budget} | seconds


def _roofline(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[Any, float]:
    """Result of an op, and its milliseconds."""
    result = func(*args, **(kwargs or {}))
    tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
    seconds = sum(tensor.nbytes for tensor in tensors) / UNKNOWN_BANDWIDTH
    packet = func._overloadpacket
    if packet in flop_registry:
        flops = flop_registry[packet](*args, **(kwargs or {}), out_val=result)
        seconds = max(seconds, flops / UNKNOWN_FLOPS)
    elif packet in ATTENTION:
        shapes = (leaf.shape if isinstance(leaf, torch.Tensor) else leaf for leaf in args)
        seconds = max(seconds, ATTENTION[packet](*shapes) / UNKNOWN_FLOPS)
    return result, 1e3 * seconds


def _statistics(spec: JobSpec) -> tuple[Graph, SACEstimator]:
    """Steps under each of the three observers."""
    source = load_source(spec)
    with FakeTensorMode():
        model = source.model().train()
        without_cache(model)
        batch = source.batch(spec.batch_size, spec.seq_len)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = partial(_loss, model, batch, source.loss or default_loss)

        def step() -> None:
            loss().backward()
            optimizer.step()
            optimizer.zero_grad()

        memory = _tracked(model, optimizer, step)
        runtime, estimator = RuntimeEstimator(), SACEstimator()
        with runtime(estimate_mode_type=MODE):
            step()
        with estimator(estimate_mode_type=MODE):
            loss()
        return _graph(aggregate_stats(model, memory, runtime, estimator, torch.device("cpu"))), estimator


def _graph(modules: ModuleInfo) -> Graph:
    try:
        return parse_module_info(modules)
    except AssertionError as error:
        raise RuntimeError("parse_module_info asserts that no module is called twice") from error


def _loss(model: nn.Module, batch: Any, of: Callable[[Any, Any], torch.Tensor]) -> torch.Tensor:
    return of(caller()(model, batch), batch)


def _tracked(model: nn.Module, optimizer: torch.optim.Optimizer, step: Callable[[], None]) -> MemTracker:
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        step()
        tracker.reset_mod_stats()
        step()
    for stats in tracker.memory_tracking.values():
        for state in (_ModState.PRE_BW, _ModState.PEAK_BW):
            stats.snapshots.setdefault(state, copy.deepcopy(stats.snapshots[_ModState.POST_FW]))
    return tracker


def _saves(estimator: SACEstimator, name: str, share: float) -> list[tuple[str, bool]]:
    stats = estimator.sac_mod_stats[name]
    kept = get_optimal_checkpointing_policy_per_module(stats, memory_budget=1 - share)
    return [(op, bool(is_saved)) for op, is_saved in zip(stats.func_names, kept, strict=True)]
