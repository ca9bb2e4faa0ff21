"""A small HTTP server for pages and figures of this process: GET only, a table of paths, threads of its own."""

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socketserver import TCPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakSet

from memplan.errors import UsageError

_LOG = logging.getLogger("memplan")
_CLOSES_WITHIN = 0.1
"""Seconds after which a server looks whether it is to end."""
_SECONDS = 30
"""After so long without a word from a client its thread ends."""
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_open: WeakSet[socket.socket] = WeakSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """What was asked."""

    query: Mapping[str, str]
    """After the question mark; of several values of one name the last."""
    accept: str
    """Kinds of answers that are understood (``Accept``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What is sent back."""

    body: bytes
    """All of it."""
    kind: str
    """Its ``Content-Type``."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further ones."""


class HttpListener:
    """A running server; its threads end with the process.

    Args:
        routes: Path → what answers it, called on any of the server's threads. What it raises makes an answer 500.
        host: Name or address to listen at; of version 6 with brackets or without. At a loopback address only requests
            for such a host are answered, so that no website can have a reader's browser ask (DNS rebinding).
        port: 0 takes any that is free.

    Raises:
        UsageError: Nothing can listen there.
    """

    def __init__(self, routes: Mapping[str, Callable[[HttpRequest], Response]], *, host: str, port: int) -> None:
        self._server = _bound(host, port)
        self._server.routes = routes
        serve = partial(self._server.serve_forever, poll_interval=_CLOSES_WITHIN)
        self._thread = threading.Thread(target=serve, name="memplan-http", daemon=True)
        self._thread.start()

        host = str(self._server.server_address[0])
        if not is_loopback(host):
            _LOG.warning("%s is open to whoever reaches this machine: nothing asks for a password", self.address)

    @property
    def address(self) -> str:
        """Host and port: ``127.0.0.1:9108``, ``[::1]:9108``."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def close(self) -> None:
        """Stop listening; a second call does nothing. Answers under way are finished by their threads."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    routes: Mapping[str, Callable[[HttpRequest], Response]]

    def server_bind(self) -> None:
        """Bind, and ask no name server who we are, as ``HTTPServer`` would."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the parent's.
        """A client that went away is nobody's business; standard error belongs to the training."""
        _LOG.debug("request of %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.0"  # A connection for each answer: none outlives ``close``.
    timeout: ClassVar[float] = _SECONDS
    server_version, sys_version = "memplan", ""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if is_loopback(str(self.server.server_address[0])) and not is_loopback(_name(self.headers.get("Host", ""))):
            self._send(403, Response(body=b"this server answers for the host itself only\n", kind="text/plain"))
            return
        route = self.server.routes.get(address.path)
        if route is None:
            self._send(404, Response(body=b"not here\n", kind="text/plain"))
            return
        try:
            request = HttpRequest(query=dict(parse_qsl(address.query)), accept=self.headers.get("Accept", ""))
            answer = route(request)
        except Exception:  # noqa: BLE001 - training goes on.
            _LOG.exception("no answer for %s", address.path)
            self._send(500, Response(body=b"no answer; the log has the reason\n", kind="text/plain"))
            return
        self._send(200, answer)

    def _send(self, status: int, answer: Response) -> None:
        self.send_response(status)
        sent = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), **_HEADERS, **answer.headers}
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name.
        """Say nothing."""


def is_loopback(host: str) -> bool:
    """Does a name or an address mean this machine only?"""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def _name(host: str) -> str:
    """A ``Host`` header without its port and brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _bound(host: str, port: int) -> _Server:
    where, host, hint = f"{host}:{port}", host.strip("[]"), "name another port, or 0 for any that is free"
    try:
        if not 0 <= port < 1 << 16:
            raise OverflowError("there is no such port")  # noqa: TRY301 - ``getaddrinfo`` takes the lower 16 bits.
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        kind = type("_Server", (_Server,), {"address_family": family})
        server: _Server = kind(place[:2], _Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot listen at {where}: {reason}", hint=hint) from error
    _open.add(server.socket)
    return server


def _forget() -> None:
    """In a process that was forked, as data loaders' workers are: the port is the parent's alone."""
    for each in list(_open):
        each.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
