"""A real Prometheus on loopback, with the example's own configuration."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

EXAMPLES = Path(__file__).parents[3] / "examples"
PROMETHEUS = os.environ.get("MEMPLAN_PROMETHEUS") or shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Prometheus:
    """A server that scrapes one exporter several times a second.

    Args:
        folder: Empty; for its configuration and its data.
        target: ``host:port`` of the exporter.
        more: Further switches.
        interval: Between two scrapes, and the time that one may take.
    """

    def __init__(self, folder: Path, target: str, *more: str, interval: str = "500ms") -> None:
        self.address = f"127.0.0.1:{free_port()}"
        config = yaml.safe_load((EXAMPLES / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
        config["rule_files"] = [str(EXAMPLES / "prometheus" / "alerts.yml")]
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = (folder / "log").open("wb")
        command = [
            str(PROMETHEUS),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
        ]
        self._process = subprocess.Popen(
            [*command, f"--web.listen-address={self.address}", *more], stdout=self._log, stderr=subprocess.STDOUT
        )
        self.until(self._ready)

    def _ready(self) -> bool:
        assert self._process.poll() is None, Path(self._log.name).read_text()
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except urllib.error.URLError:
            return False

    def api(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the HTTP API; an expression that does not parse is an error."""
        address = f"http://{self.address}/api/v1/{path}?{urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression is now: series with ``metric`` and ``value``."""
        return self.api("query", query=expression)["result"]

    def value(self, expression: str) -> float:
        """The one value of an expression."""
        (found,) = self.query(expression)
        return float(found["value"][1])

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        return {each["labels"]["alertname"] for each in self.api("alerts")["alerts"] if each["state"] == "firing"}

    @staticmethod
    def until(condition: Any, seconds: float = 20) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "never so"
            time.sleep(0.05)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(20)
        self._log.close()
