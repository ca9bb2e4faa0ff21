"""The page of a recording, in a real browser."""

import re
from dataclasses import replace
from pathlib import Path

from memplan.report.html import profile as page
from memplan.report.profile.overlay import overlay
from memplan.runtime.profile.records import Sample
from tests.report.html.chromium import Chromium
from tests.report.html.drawn import CHART, colour_of, colours, texts
from tests.report.profile_examples import EXAMPLE, plan_of, played, recording_of

EVENTS = played(EXAMPLE, 3)
RUN = recording_of(EVENTS)
PLAN = plan_of(played(EXAMPLE, 2))


def test_the_page_shows_both_curves(chromium: Chromium, tmp_path: Path) -> None:
    missing = [event for event in EVENTS if event.key != 3]
    run = recording_of(missing)
    over = overlay(run, run.events, PLAN)
    (tmp_path / "over.html").write_text(page.render(run, over), encoding="utf-8")
    chromium.open((tmp_path / "over.html").as_uri())
    assert chromium.complaints() == []
    seen = colours(chromium, f"{CHART} canvas.main")
    assert {colour_of(chromium, name) for name in ("measured", "temporary", "bad")} <= seen
    assert "predicted" in texts(chromium, f"{CHART} .readout")[0]
    assert "measured" in texts(chromium, f"{CHART} .readout")[0]
    rows = texts(chromium, "[data-part=pieces] tbody tr")
    assert [row.split("\t")[0] for row in rows] == ["set-up", "step 1", "step 2", "step 3"]
    chromium.js(f"document.querySelector('{CHART} canvas.main').focus()")
    before = chromium.js(f"document.querySelector('{CHART}').dataset.event")
    chromium.key("ArrowLeft")
    assert chromium.js(f"document.querySelector('{CHART}').dataset.event") != before
    for width in (320, 1280):
        chromium.open((tmp_path / "over.html").as_uri(), width=width)
        assert chromium.js("document.documentElement.scrollWidth") <= width


def test_a_page_without_a_plan_shows_the_run_alone(chromium: Chromium, tmp_path: Path) -> None:
    sampled = replace(RUN, events=None, depth="sampled", samples=tuple(Sample(1000 * at, at, at) for at in range(30)))
    for name, recording in (("full", RUN), ("sampled", sampled)):
        file = tmp_path / f"{name}.html"
        file.write_text(page.render(recording), encoding="utf-8")
        chromium.open(file.as_uri(), dark=True)
        assert chromium.complaints() == []
        assert colour_of(chromium, "measured") in colours(chromium, f"{CHART} canvas.main")
        assert texts(chromium, f"{CHART} .zooms button")[:4] == ["All", "Step 1", "Step 2", "Step 3"]
        assert re.search(r"measured$", texts(chromium, f"{CHART} .readout strong")[0])
    counted = replace(RUN, events=None, depth="counters")
    (tmp_path / "counted.html").write_text(page.render(counted), encoding="utf-8")
    chromium.open((tmp_path / "counted.html").as_uri())
    assert chromium.complaints() == []
    assert not chromium.js(f"Boolean(document.querySelector('{CHART}'))")
    assert len(texts(chromium, "[data-part=regions] tbody tr")) == 2


def test_a_region_whose_name_is_markup_stays_a_name(chromium: Chromium, tmp_path: Path) -> None:
    evil = "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>"
    run = replace(RUN, name=evil, notes=(evil,), regions=(RUN.regions[0]._replace(path=(evil,)),))
    (tmp_path / "evil.html").write_text(page.render(run, overlay(run, run.events, PLAN)), encoding="utf-8")
    chromium.open((tmp_path / "evil.html").as_uri())
    assert chromium.js("window.hurt") is None
    assert chromium.complaints() == []
    assert evil in texts(chromium, "[data-part=regions] tbody")[0]
