"""The live page: a server on loopback that shows a run while it lasts."""

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from memplan.page.colours import variables
from memplan.page.policy import asset, policy, script
from memplan.runtime.monitor.records import Check, RunPlan
from memplan.runtime.web.listener import HttpListener, HttpRequest, Response
from memplan.runtime.web.recorder import Monitor, SeriesRecorder

PORT = 9109
"""Where nobody names one."""
SCRIPTS = ("lines", "heatmap", "words", "main")
"""In the order in which they need one another."""


class Dashboard:
    """A running page; thread-safe. ``start`` makes it.

    Port 0 takes any that is free.

    Raises:
        UsageError: Nothing can listen there.
    """

    def __init__(self, recorder: SeriesRecorder, *, host: str, port: int) -> None:
        self._recorder = recorder
        self._listener = HttpListener({"/": _page, "/data.json": self._data}, host=host, port=port)
        recorder.start()

    @property
    def address(self) -> str:
        """Host and port."""
        return self._listener.address

    def close(self) -> None:
        """Stop serving; a second call does nothing."""
        self._listener.close()
        self._recorder.close()

    def _data(self, request: HttpRequest) -> Response:
        told = self._recorder.document(request.query.get("at", ""))
        text = json.dumps(told, separators=(",", ":"), allow_nan=False)
        return Response(body=text.encode("ascii"), kind="application/json")


def start(
    source: Callable[[], Check | None],
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    job: str = "",
    plan: RunPlan | None = None,
) -> Dashboard:
    """Show a run on a web page, live.

    The source has the last check, or None before the first, and is asked ten times a second on a thread of its own.
    Port 0 takes any that is free. Beyond loopback nothing asks for a password.

    Raises:
        UsageError: Nothing can listen there.
    """
    return Dashboard(SeriesRecorder(source, job=job, plan=plan), host=host, port=port)


def serve_dashboard(
    monitor: Monitor, *, port: int = PORT, host: str = "127.0.0.1", job: str | None = None
) -> Dashboard:
    """Show what a monitor finds on a web page, live, from inside the training process.

    Args:
        monitor: A ``MemoryMonitor``; the page shows the checks that it makes.
        port: 0 takes any that is free.
        host: Address to listen at. Beyond loopback nothing asks for a password.
        job: Name of the run; None takes the name of the script.

    Returns:
        The running page, with ``address`` and ``close()``; its threads end with the process.

    Raises:
        UsageError: Nothing can listen there.
    """
    name = Path(sys.argv[0]).stem if job is None else job
    return start(monitor.latest, host=host, port=port, job=name, plan=monitor.plan)


def _page(request: HttpRequest) -> Response:  # noqa: ARG001 - it is the same for everybody.
    body, allowed = page()
    return Response(
        body=body.encode("utf-8"), kind="text/html; charset=utf-8", headers={"Content-Security-Policy": allowed}
    )


@cache
def page() -> tuple[str, str]:
    """The page, which holds no figures, and what its policy lets it load: the figures, from this server."""
    style = variables() + asset("memplan.page", "page.css") + asset("memplan.runtime.web", "live.css")
    own = (asset("memplan.runtime.web", f"{name}.js") for name in SCRIPTS)
    code = script(asset("memplan.page", "helpers.js"), *own)
    body = asset("memplan.runtime.web", "live.html").replace("@STYLE@", style).replace("@SCRIPT@", code)
    return body, policy(styles=[style], scripts=[code], connect="'self'") + "; frame-ancestors 'none'"
