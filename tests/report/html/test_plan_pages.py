"""The pages of plans and snapshots: drawn in the frame's colours under a policy that lets nothing else in."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.lifetime.graph import TensorLifetime
from memplan.lifetime.records import Category
from memplan.measure.graphs import JobGraphs
from memplan.report.checkpoint import html as checkpoint_html
from memplan.report.graph import html as graph_html
from memplan.report.graph import json as graph_json
from memplan.report.recommend import html as recommend_html
from memplan.report.reuse import html as reuse_html
from memplan.report.snapshot import html as snapshot_html
from memplan.snapshot.analysis import analyse
from memplan.snapshot.policy import recorded_policy
from memplan.snapshot.read import load_snapshot
from memplan.units import Bytes, OpIndex, StorageId
from tests.report import example_checkpoint_plans, example_recommendations, example_reuse_plans
from tests.report.html.chromium import Chromium
from tests.report.html.reader import Reader
from tests.snapshot.snapshot_files import small_program, write

PAGES: dict[str, Callable[[], str]] = {
    "checkpoint": lambda: checkpoint_html.render(example_checkpoint_plans.answer()),
    "recommend": lambda: recommend_html.render(example_recommendations.answer()),
    "reuse": lambda: reuse_html.render(example_reuse_plans.answer()),
}


@pytest.mark.parametrize("kind", PAGES)
def test_a_plans_page_is_drawn_in_its_colours_under_its_policy(kind: str, chromium: Chromium, tmp_path: Path) -> None:
    page = PAGES[kind]()
    (tmp_path / "plan.html").write_text(page, encoding="utf-8")
    chromium.open((tmp_path / "plan.html").as_uri(), dark=True)
    grounds = (
        "[getComputedStyle(document.querySelector('svg .back')).fill, getComputedStyle(document.body).backgroundColor]"
    )
    assert chromium.js(grounds) == ["rgb(16, 20, 24)"] * 2
    chromium.click(*middle(chromium, "#theme"))
    assert chromium.js(grounds) == ["rgb(255, 255, 255)"] * 2
    assert chromium.complaints() == []
    (tmp_path / "plan.html").write_text(page.replace("</body>", "<style>td { color: red }</style></body>"))
    chromium.open((tmp_path / "plan.html").as_uri())
    assert chromium.js("getComputedStyle(document.querySelector('td')).color") != "rgb(255, 0, 0)"
    assert chromium.complaints() != []


def middle(browser: Chromium, selector: str) -> tuple[float, float]:
    """Of an element."""
    x, y, width, height = browser.box(selector)
    return x + width / 2, y + height / 2


@pytest.mark.parametrize("kind", PAGES)
def test_the_json_of_a_page_can_be_had(kind: str, chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "plan.html").write_text(PAGES[kind](), encoding="utf-8")
    chromium.open((tmp_path / "plan.html").as_uri())
    chromium.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    chromium.click(*middle(chromium, "#download"))
    saved = tmp_path / "memplan.json"
    deadline = time.monotonic() + 20
    while not saved.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert json.loads(saved.read_text())["schema_version"]
    assert chromium.complaints() == []


def test_a_snapshots_page_is_drawn_by_place(chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "snapshot.html").write_text(_snapshot(tmp_path), encoding="utf-8")
    for width in (1280, 400):
        chromium.open((tmp_path / "snapshot.html").as_uri(), width=width)
        assert chromium.complaints() == []
        assert chromium.js("document.documentElement.scrollWidth") <= width
        assert "the peak: event 3: 14.00 MiB allocated" in chromium.js("document.querySelector('.readout').innerText")
        assert chromium.js("document.querySelectorAll('[data-part=timeline] .readout .swatch').length") >= 1


def test_the_page_of_a_deep_graph_carries_what_it_draws() -> None:
    """Of 1,500 tensors that are alive together more pairs meet than an export holds."""
    tensors = tuple(
        TensorLifetime(
            id=StorageId(index), name=f"w{index}", nbytes=Bytes(4 + index), category=Category.PARAMETER, module="m",
            source="", stream=0, start=OpIndex(-1), end=OpIndex(9), born="", last_read="",
        )
        for index in range(1500)
    )  # fmt: skip
    graph = JobGraphs(
        target="deep", device="t4", options={}, ops_by_phase={"forward": 9}, steps=1, tensors=tensors, left_out=7,
        peak_op="", peak_bytes=Bytes(1), code="", module=b"", operations=(), ridge=1.0, assumptions=(),
        memplan_version="0",
    )  # fmt: skip
    with pytest.raises(UsageError):
        graph_json.render(graph)
    carried = json.loads(Reader(graph_html.render(graph)).report)
    assert [node["id"] for node in carried["nodes"]] == list(range(1500 - graph_html.MOST_ROWS, 1500))
    assert carried["left_out"] == 7 + 1500 - graph_html.MOST_ROWS


def _snapshot(folder: Path) -> str:
    found = load_snapshot(write(folder, small_program()))
    (device,) = found.devices
    analysis = analyse(device, recorded_policy(found.settings), ())
    return snapshot_html.render("small.pickle", device, [analysis], analysis, top=8)


@pytest.mark.parametrize("kind", PAGES)
def test_a_plans_page_has_room_on_a_telephone(kind: str, chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "plan.html").write_text(PAGES[kind](), encoding="utf-8")
    chromium.open((tmp_path / "plan.html").as_uri(), width=400)
    wider = "[...document.querySelectorAll('body')].filter(each => each.scrollWidth > each.clientWidth).length"
    assert chromium.js(wider) == 0
    if kind != "reuse":  # An arena's picture is wider, for thousands of buffers; its words stand in the table, too.
        tall = "[...document.querySelectorAll('svg text')].map(each => each.getBoundingClientRect().height)"
        assert min(chromium.js(tall)) > 8
