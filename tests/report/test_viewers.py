"""The exports in the programs that they are for, in a real browser.

Needs Chromium (``MEMPLAN_CHROMIUM``, or ``chromium`` on the path) and a folder ``MEMPLAN_VIEWERS`` with
``MemoryViz.js`` (PyTorch, ``torch/utils/viz``) and the npm packages ``d3@5`` and ``speedscope`` in ``node_modules``.
"""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.report.history import speedscope
from memplan.report.history import viewer as viewer_snapshot
from memplan.snapshot.read import load_snapshot
from tests.report.exported import REAL, recorded_step, snapshot_of

CHROMIUM = os.environ.get("MEMPLAN_CHROMIUM") or shutil.which("chromium")
VIEWERS = Path(os.environ.get("MEMPLAN_VIEWERS", "/nowhere"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium: set MEMPLAN_CHROMIUM"),
    pytest.mark.skipif(not (VIEWERS / "MemoryViz.js").is_file(), reason="no viewers: set MEMPLAN_VIEWERS"),
]
VIEWS = ("Active Memory Timeline", "Allocator State History", "Active Cached Segment Timeline")
# The viewer imports d3 from a server on the net; the page's import map turns that to the npm package.
PAGE = """<!doctype html><html><head><script type="importmap">%(imports)s</script></head><body>
<script>
const errors = [];
window.addEventListener('error', event => errors.push(String(event.message)));
window.addEventListener('unhandledrejection', event => errors.push(String(event.reason)));
console.log = () => {};
// Without a screen there may be no frames to wait for.
window.requestAnimationFrame = draw => setTimeout(draw, 10);
</script>
<script type="module">
import {add_remote_files} from "/MemoryViz.js";
const pause = milliseconds => new Promise(done => setTimeout(done, milliseconds));
const shown = () => [...document.querySelectorAll('body > div')].find(
    div => div.style.display !== 'none' && div.querySelector('svg'));
add_remote_files([{name: 'memory.pickle', url: '/memory.pickle'}]);
const result = {};
for (const name of %(views)s) {
  const view = document.querySelectorAll('select')[1];
  for (let wait = 0; wait < 100 && !shown(); wait++) await pause(50);
  view.value = name;
  view.dispatchEvent(new Event('change'));
  for (let wait = 0; wait < 100 && !shown()?.querySelector('polygon, rect'); wait++) await pause(50);
  await pause(200);
  const div = shown();
  result[name] = {polygons: div.querySelectorAll('polygon').length, rows: div.querySelectorAll('pre').length,
                  rectangles: div.querySelectorAll('rect').length, text: div.textContent};
}
const report = document.createElement('script');
report.type = 'application/json';
report.id = 'result';
report.textContent = JSON.stringify({views: result, errors});
document.body.append(report);
</script></body></html>"""


def import_map() -> str:
    packages = sorted((VIEWERS / "node_modules").glob("d3*"))
    paths = {each.name: f"/node_modules/{each.name}/{'src/' * (each.name != 'd3')}index.js" for each in packages}
    remote = {f"https://cdn.skypack.dev/{name}@{1 if '-' in name else 5}": path for name, path in paths.items()}
    return json.dumps({"imports": paths | remote})


class Handler(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        found = Path(super().translate_path(path))
        # d3 names its files without their endings.
        return str(found if found.exists() else found.with_name(found.name + ".js"))

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def page(address: str, profile: Path) -> str:
    """The page as it is once its scripts have run."""
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    command = [CHROMIUM, *words, f"--user-data-dir={profile}", "--virtual-time-budget=60000", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "node_modules").symlink_to(VIEWERS / "node_modules")
    (folder / "MemoryViz.js").symlink_to(VIEWERS / "MemoryViz.js")
    (folder / "index.html").write_text(PAGE % {"imports": import_map(), "views": json.dumps(VIEWS)})
    return folder


def viewed(site: Path, data: bytes) -> dict:
    (site / "memory.pickle").write_bytes(data)
    with served(site) as address:
        dom = page(address + "/index.html", site.parent / "profile")
    found = re.search(r'<script type="application/json" id="result">(.*?)</script>', dom, re.DOTALL)
    assert found, dom[-2000:]
    result = json.loads(found[1])
    assert result["errors"] == []
    return result["views"]


def test_pytorchs_viewer_draws_a_recording(site: Path) -> None:
    snapshot = recorded_step()
    (device,) = snapshot.devices
    actions = [event.action for event in device.events]
    views = viewed(site, viewer_snapshot.render(snapshot))
    # One band for each allocation, one for what is too small, one for the small map below.
    assert views[VIEWS[0]]["polygons"] == actions.count("alloc") + 2
    assert views[VIEWS[2]]["polygons"] == actions.count("segment_alloc") + 2
    for category in ("parameter", "gradient", "activation"):
        assert category in views[VIEWS[0]]["text"]
    # One line for each event, both halves of a free together, and one for the stack.
    assert views[VIEWS[1]]["rows"] == len(actions) - actions.count("free_completed") + 1
    segments = device.layout.segments
    live = sum(block.state != "free" for segment in segments for block in segment.blocks)
    # Each live block is drawn with what rounding cost.
    assert views[VIEWS[1]]["rectangles"] == len(segments) + 2 * live


def test_pytorchs_viewer_draws_expandable_segments_and_a_full_device(site: Path) -> None:
    mib = 1 << 20
    stream = [Request("alloc", 0, 60 * mib, 0), Request("free", 0, 0, 0), Request("alloc", 1, 30 * mib, 0)]
    snapshot = snapshot_of(stream, AllocatorPolicy(expandable_segments=True))
    views = viewed(site, viewer_snapshot.render(snapshot))
    assert views[VIEWS[0]]["polygons"] == 2 + 2
    assert "segment_map" in views[VIEWS[1]]["text"]


@pytest.mark.skipif(not REAL, reason="no real snapshots here: set MEMPLAN_DATA")
def test_pytorchs_viewer_draws_a_real_snapshot_written_again(site: Path) -> None:
    snapshot = load_snapshot(
        min((path for path in REAL if path.stat().st_size > 1 << 20), key=lambda p: p.stat().st_size)
    )
    views = viewed(site, viewer_snapshot.render(snapshot))
    assert views[VIEWS[0]]["polygons"] > 1000
    assert views[VIEWS[1]]["rectangles"] > 100


def test_speedscope_opens_both_profiles(site: Path) -> None:
    release = VIEWERS / "node_modules" / "speedscope" / "dist" / "release"
    (site / "scope").symlink_to(release)
    (site / "net.json").write_text(speedscope.render(recorded_step(), name="net"))
    with served(site) as address:
        query = f"#profileURL={quote(address + '/net.json', safe='')}&title=net"
        dom = page(f"{address}/scope/index.html{query}", site.parent / "profile")
    assert "(1/2)" in dom
    assert "Something went wrong" not in dom
