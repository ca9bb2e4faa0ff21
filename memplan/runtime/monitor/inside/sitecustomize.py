"""What Python runs at the start of every process that ``memplan monitor`` watches, as other watchers do it.

It may be any Python of any age, without memplan, so that it is short, imports the standard library alone, and swallows
every error. Nothing happens until the process has imported torch: then a daemon thread begins to read (``agent``).
"""

# ruff: noqa: PTH100, PTH120, BLE001, S110, UP031, ARG002
# mypy: ignore-errors
# Old Pythons run it, too, and no error of it may reach the process.
import os
import sys

ADDRESS = "MEMPLAN_MONITOR"
"""The variable that holds the socket's path."""


def _go_on() -> None:
    """Run the ``sitecustomize`` that this one stands in front of."""
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _UntilTorch:
    """An importer that finds nothing: it hears of torch being imported, and goes away."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            return _watched_spec()
        except Exception:
            return None


def _watched_spec() -> object:
    """How torch is imported, with the watching begun before its importer goes on: no step, no error is missed."""
    from importlib.util import find_spec

    spec = find_spec("torch")
    if spec is None or spec.loader is None:
        return None
    load = spec.loader.exec_module

    def load_and_watch(module: object) -> None:
        load(module)
        _watch()

    spec.loader.exec_module = load_and_watch
    return spec


def _watch() -> None:
    try:
        if os.environ.get(ADDRESS + "_COUNT_CPU") == "1":
            _count()
        from memplan.runtime.monitor import agent

        agent.start(os.environ[ADDRESS])
    except Exception as error:
        _say_why_not(error)


def _count() -> None:
    try:
        from memplan.runtime.meters import cpu

        cpu.start_counting()
    except Exception:
        pass  # Readings then have no counts, which the monitor says.


def _say_why_not(error: Exception) -> None:
    import json
    import socket

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            told = {"kind": "blind", "pid": os.getpid(), "why": "%s: %s" % (type(error).__name__, error)}
            out.sendto(json.dumps(told).encode(), os.environ[ADDRESS])
    except Exception:
        pass


try:
    if os.environ.get(ADDRESS):
        sys.meta_path.insert(0, _UntilTorch())
finally:
    _go_on()
