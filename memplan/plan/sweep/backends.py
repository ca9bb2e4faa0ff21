"""Backends that carry the searches: joblib's, and the cluster behind it."""

import importlib
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from memplan.errors import UsageError
from memplan.plan.sweep.records import Backend

CONNECT_SECONDS = 10.0
"""After which a cluster that does not answer is not there."""
LEAST = 2
"""Processors of a cluster: with one, joblib runs everything in the process that asks."""
ALL = -1
"""joblib's word for as many tasks at once as the cluster has processors."""


@contextmanager
def carried_by(backend: Backend, address: str | None, at_once: int) -> Iterator[None]:
    """Let joblib's parallel loops run on a backend.

    Without an address a cluster is started on this machine, and ended here. One that is there takes as many tasks at
    once as it has processors.

    Raises:
        UsageError: The backend is not installed, or no cluster answers at the address.
    """
    from joblib import parallel_config

    with ExitStack() as stack:
        if backend == "dask":
            _enter_dask(stack, address, max(LEAST, at_once))
        elif backend == "ray":
            _enter_ray(stack, address, max(LEAST, at_once))
        stack.enter_context(parallel_config(backend=backend, n_jobs=at_once if backend == "loky" else ALL))
        yield


def _enter_dask(stack: ExitStack, address: str | None, at_once: int) -> None:
    distributed = _import("distributed", "dask", "cluster")
    cluster: Any = address
    if address is None:
        cluster = distributed.LocalCluster(
            n_workers=at_once,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.ERROR,  # That a worker takes seconds to end concerns nobody.
        )
        stack.enter_context(cluster)
    try:
        # joblib's backend takes the client that was made last.
        client = stack.enter_context(distributed.Client(cluster, timeout=CONNECT_SECONDS))
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise _no_answer("Dask scheduler", address, error) from error
    _check_size(sum(client.ncores().values()))


def _enter_ray(stack: ExitStack, address: str | None, at_once: int) -> None:
    ray = _import("ray", "ray", "ray")
    _import("ray.util.joblib", "ray", "ray").register_ray()
    try:
        if address is None:
            ray.init(num_cpus=at_once, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        raise _no_answer("Ray cluster", address, error) from error
    stack.callback(ray.shutdown)
    _check_size(int(ray.cluster_resources().get("CPU", 0)))


def _check_size(processors: int) -> None:
    if processors < LEAST:
        hint = f"give its workers {LEAST} threads in all, or leave --backend out"
        raise UsageError("a cluster of one processor carries nothing: joblib would search on this machine", hint=hint)


def _import(module: str, backend: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        hint = f"pip install 'memplan[{extra}]'"
        raise UsageError(f"--backend {backend} cannot be imported: {error}", hint=hint) from error


def _no_answer(what: str, address: str | None, error: Exception) -> UsageError:
    reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
    at = f" at '{address}'" if address else " on this machine"
    return UsageError(f"no {what} answers{at}: {reason[0]}", where="--address" if address else "--backend")
