"""Metrics for Prometheus, from a port on loopback."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from memplan.errors import UsageError
from memplan.runtime.metrics.collector import Collector
from memplan.runtime.metrics.pools import CountedPool
from memplan.runtime.monitor.records import Check, RunPlan
from memplan.runtime.web.listener import HttpListener, HttpRequest, Response
from memplan.runtime.web.recorder import Monitor

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

PORT = 9108
"""Where nobody names one."""
_HINT = "pip install 'memplan[runtime]'"


class Exporter:
    """A running exporter; thread-safe. ``start`` and ``export_metrics`` make it.

    Port 0 takes any that is free. ``also`` is a registry that the metrics are to stand in beside the exporter's own.

    Raises:
        UsageError: Nothing can listen there, or the registry has these metrics already.
    """

    def __init__(self, collector: Collector, *, host: str, port: int, also: "CollectorRegistry | None" = None) -> None:
        from prometheus_client import CollectorRegistry

        self.registry = CollectorRegistry(auto_describe=True)
        """Of its own: what else the process exports is not served here."""
        self._collector, self._also = collector, also
        self.registry.register(collector)
        self._listener = HttpListener({"/": _root, "/metrics": self._metrics}, host=host, port=port)
        try:
            if also is not None:
                also.register(collector)
        except ValueError as error:
            self._also = None
            self.close()
            raise UsageError(f"the registry has memplan's metrics already: {error}", hint="export once") from error

    @property
    def address(self) -> str:
        """Host and port."""
        return self._listener.address

    def close(self) -> None:
        """Stop serving; a second call does nothing."""
        self._listener.close()
        if self._also is not None:
            self._also.unregister(self._collector)
            self._also = None

    def _metrics(self, request: HttpRequest) -> Response:
        """In the format that the client asks for: Prometheus' text, or OpenMetrics."""
        from prometheus_client.exposition import choose_encoder

        encoder, kind = choose_encoder(request.accept)
        return Response(body=encoder(self.registry), kind=kind)


def start(
    source: Callable[[], Check | None],
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    job: str = "",
    plan: RunPlan | None = None,
    registry: "CollectorRegistry | None" = None,
    pools: Mapping[str, CountedPool] | None = None,
) -> Exporter:
    """Serve the last check as metrics, under ``/metrics``.

    The source is asked for the last check, or None before the first, at every scrape, on a thread of the server. Beyond
    loopback nothing asks for a password. Other arguments as of ``export_metrics``.

    Raises:
        UsageError: Nothing can listen there, ``prometheus_client`` is missing, or the registry has such metrics.
    """
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise UsageError("metrics need the package prometheus-client", hint=_HINT) from error
    return Exporter(Collector(source, job=job, plan=plan, pools=pools), host=host, port=port, also=registry)


def export_metrics(
    monitor: Monitor,
    *,
    port: int = PORT,
    host: str = "127.0.0.1",
    job: str | None = None,
    registry: "CollectorRegistry | None" = None,
    pools: Mapping[str, CountedPool] | None = None,
) -> Exporter:
    """Serve what a monitor last found, from inside the training process.

    Args:
        monitor: A ``MemoryMonitor``; whenever it checks, the metrics follow.
        port: 0 takes any that is free; with several ranks on a host ``9108 + local_rank``.
        host: Address to listen at. Beyond loopback nothing asks for a password.
        job: The label ``job``, which tells runs apart; None takes the name of the script.
        registry: One that the metrics are to stand in as well, such as ``prometheus_client.REGISTRY``.
        pools: Tensor pools whose accounts are to be served, by name: ``{"replay": pool}``.

    Returns:
        The running exporter, with ``address`` and ``close()``; its threads end with the process.

    Raises:
        UsageError: Nothing can listen there, ``prometheus_client`` is missing, or the registry has such metrics.
    """
    name = Path(sys.argv[0]).stem if job is None else job
    return start(monitor.latest, host=host, port=port, job=name, plan=monitor.plan, registry=registry, pools=pools)


def _root(request: HttpRequest) -> Response:  # noqa: ARG001
    return Response(body=b"memplan: metrics for Prometheus are under /metrics\n", kind="text/plain; charset=utf-8")
