"""Makes the pictures of docs/metrics.md: ``python -m benchmarks.dashboard_pictures``; two minutes.

Trains a small transformer on the CPU for real, with memplan's monitor, exporter and live page in the process, and
Debian's Prometheus scraping it. Two thirds in, the loop begins to keep an output of every step: memory grows, leaves
what was predicted, and alerts fire. Then Chromium takes pictures of the live page, and of every expression of the
Grafana dashboard as Prometheus itself draws it (its console templates): Grafana is not in Debian or on PyPI, and has
not been run. Needs Chromium, Prometheus, Pillow, a C++ compiler and ninja.

This file is also the target that is estimated: ``model``, ``batch`` and ``train_step`` below are what both sides run.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
BATCH, LENGTH, WIDTH = 8, 128, 256
STEPS, LEAKS_FROM = 200, 130
"""Steps, and that from which on outputs are kept."""
MOST_BYTES = 300_000
HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8">{{ template "prom_console_head" }}<style>
body { font-family: sans-serif; margin: 1rem 1.5rem }
h1 { font-size: 1.4rem } h3 { font-size: .95rem; margin: .8rem 0 .2rem } td { padding-right: .8rem; font-size: .82rem }
main { display: grid; grid-template-columns: repeat(24, 1fr); gap: .2rem 1rem }
.rickshaw_legend { background: none !important; color: #333 !important; padding: 0 !important; font-size: .72rem }
.rickshaw_legend .line { padding: 0 6px 0 0 !important; display: inline-block; margin: 0 }
</style></head><body>"""
FORMS = {"bytes": "humanize1024", "percentunit": "humanizePercentage"}
"""Grafana's unit → Prometheus' function."""
LIBRARIES = "/usr/share/doc/prometheus/examples/console_libraries"


def model() -> torch.nn.Module:
    """A small encoder."""
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)


def batch(batch_size: int, length: int = LENGTH) -> torch.Tensor:
    """Vectors; the plan is for the longest."""
    return torch.randn(batch_size, length, WIDTH)


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> torch.Tensor:
    """One step; returns the output."""
    import memplan

    optimizer.zero_grad()
    with memplan.profile("forward"):
        output = model(batch)
        loss = output.square().mean()
    with memplan.profile("backward"):
        loss.backward()
    with memplan.profile("optimizer"):
        optimizer.step()
    return output.detach()


def main() -> None:
    """Train, and take the pictures."""
    from memplan.runtime.metrics.exporter import export_metrics
    from memplan.runtime.monitor.monitor import MemoryMonitor
    from memplan.runtime.web.server import start
    from tests.report.html.chromium import Chromium
    from tests.runtime.metrics.prometheus import Prometheus

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        network, regions = model(), []
        monitor = MemoryMonitor(plan=planned(folder), count_cpu=True, regions=lambda: regions)
        network = model()
        exporter = export_metrics(monitor, port=0, job="encoder")
        page = start(monitor.latest, port=0, job="encoder", plan=monitor.plan)
        (folder / "consoles").mkdir()
        consoles = f"--web.console.templates={folder / 'consoles'}", f"--web.console.libraries={LIBRARIES}"
        server = Prometheus(folder, exporter.address, *consoles, interval="1s")
        browser = Chromium(folder / "profile")
        try:
            began = time.time()
            train(network, monitor, regions)
            (folder / "consoles" / "dashboard.html").write_text(console(int(time.time() - began) + 10), "utf-8")
            server.until(lambda: "MemplanPeakAbovePrediction" in server.firing())
            print(f"{monitor.latest().number + 1} checks, firing: {', '.join(sorted(server.firing()))}")  # type: ignore[union-attr]
            live(browser, f"http://{page.address}/", folder)
            prometheus(browser, f"http://{server.address}/consoles/dashboard.html", folder)
        finally:
            browser.close()
            server.close()
            page.close()
            exporter.close()
            monitor.close()


def planned(folder: Path) -> Path:
    """What memplan predicts of this very file."""
    file = folder / "plan.json"
    options = ["--gpu", "cpu", "--batch-size", str(BATCH), "--timeline", "-f", f"json={file}"]
    command = [sys.executable, "-m", "memplan", "estimate", str(Path(__file__).relative_to(ROOT)), *options]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.DEVNULL)
    return file


def train(network: torch.nn.Module, monitor: Any, regions: list[Any]) -> None:
    """Steps of varying length, each followed by a check."""
    import memplan
    from memplan.runtime.monitor.records import RegionUse

    optimizer, kept = torch.optim.AdamW(network.parameters()), []
    # Parts of the step are measured once, before the loop.
    with memplan.profile("step", depth="counters") as run:
        train_step(network, optimizer, batch(BATCH))
        train_step(network, optimizer, batch(BATCH))
    regions += [
        RegionUse(name=each.path[-1], bytes=each.growth_bytes) for each in run.recording.regions if each.path[1:]
    ]
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        length = LENGTH if step % 16 == 0 else int(torch.randint(LENGTH // 2, LENGTH + 1, (), generator=generator))
        output = train_step(network, optimizer, batch(BATCH, length))
        if step >= LEAKS_FROM:
            kept.append(output)
        monitor.check(step)


def live(browser: Any, address: str, folder: Path) -> None:
    """The live page, light, and dark on a telephone."""
    for name, width, dark, last in (
        ("monitor-page.png", 1120, False, "[data-part=turns]"),
        ("monitor-page-dark.png", 400, True, "[data-part=timeline]"),
    ):
        browser.open(address, width=width, dark=dark)
        browser.until("!document.getElementById('figures').hidden")
        time.sleep(1.5)
        browser.settle()
        browser.picture(folder / name, first=".top", last=last, around=16)
        kept(folder / name)


def prometheus(browser: Any, address: str, folder: Path) -> None:
    """Prometheus' drawing of the dashboard."""
    browser.open(address, width=1280)
    browser.until(
        "document.querySelectorAll('svg path.path').length + document.querySelectorAll('svg path').length > 30"
    )
    time.sleep(2)
    browser.picture(folder / "grafana-expressions.png", first="h1", last="main", around=16)
    kept(folder / "grafana-expressions.png")


def kept(picture: Path) -> None:
    """Put a picture into the docs, small."""
    from PIL import Image

    file = PICTURES / picture.name
    Image.open(picture).convert("RGB").save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size} bytes")
    if file.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{file.name} is larger than {MOST_BYTES} bytes")


def console(seconds: int) -> str:
    """A console template of Prometheus with the panels of the Grafana dashboard, as far as consoles go: no heat maps.

    Args:
        seconds: How far graphs go back.
    """
    dashboard = json.loads((ROOT / "examples" / "grafana" / "dashboard.json").read_text("utf-8"))
    panels = [line for panel in dashboard["panels"] for line in panel_lines(panel, seconds)]
    title = f"{escape(dashboard['title'])} <small>(expressions, drawn by Prometheus)</small>"
    return HEAD + f"<h1>{title}</h1><main>" + "\n".join(panels) + "</main></body></html>"


def panel_lines(panel: dict[str, Any], seconds: int) -> Iterator[str]:
    """One panel: a table of values now, or a graph."""
    name, width = f"panel{panel['id']}", panel["gridPos"]["w"]
    yield f'<section style="grid-column: span {width}"><h3>{escape(panel["title"])}</h3>'
    found = [(filled(target["expr"]), target["legendFormat"]) for target in panel["targets"]]
    if panel["type"] in {"stat", "table", "bargauge"}:
        form = FORMS.get(panel["fieldConfig"]["defaults"].get("unit", ""), "humanize")
        yield "<table>"
        for expression, _ in found:
            shown = "{{ if not (match `__name__|instance` $name) }}{{ $value }} {{ end }}"
            labels = "{{ range $name, $value := .Labels }}" + shown + "{{ end }}"
            value = "{{ .Value | " + form + " }}"
            yield f"{{{{ range query `{expression}` }}}}<tr><td>{labels}</td><td><b>{value}</b></td></tr>{{{{ end }}}}"
        yield "</table></section>"
        return
    heat = panel["type"] == "heatmap"
    unit = panel["fieldConfig"]["defaults"].get("unit", "")
    form = "humanize1024" if unit == "bytes" else "humanize"
    names = [legend.replace("{{", "[[").replace("}}", "]]").replace(" [[rank]]", "") for _, legend in found]
    options = {
        "expr": [expression for expression, _ in found],
        "name": ["up to [[le]] s"] if heat else names,
        "renderer": "line",
        "duration": seconds,
        "height": 20 * panel["gridPos"]["h"],
        "min": 0 if panel["fieldConfig"]["defaults"].get("min") == 0 else "auto",
    }
    yield f'<div id="{name}"></div><script>(() => {{ const options = {json.dumps(options)};'
    yield f"options.node = document.getElementById('{name}');"
    yield f"options.yAxisFormatter = options.yHoverFormatter = PromConsole.NumberFormatter.{form};"
    yield "new PromConsole.Graph(options); })();</script></section>"


def filled(expression: str) -> str:
    """Grafana's variables, as when every run and GPU is chosen."""
    return expression.replace("$job", ".*").replace("$gpu", ".*").replace("$__rate_interval", "15s")


if __name__ == "__main__":
    main()
