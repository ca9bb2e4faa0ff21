"""The live page as a reader meets it: in a real browser, while checks come in."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest

from memplan.findings.records import Finding
from memplan.page import policy as shared
from memplan.runtime.monitor.records import Check, Level, RegionUse, RunPlan
from memplan.runtime.web.server import Dashboard, start
from memplan.units import format_bytes
from tests.report.html.chromium import Chromium
from tests.runtime.metrics.checks import GIB, PLAN, REASON, SIZES, check, device, health

TIMELINE, SHARES, HEAT, REGIONS, TURNS = (
    f"[data-part={name}]" for name in ("timeline", "shares", "heatmap", "regions", "turns")
)
HOSTILE = "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>\u202e"
PIXELS = """(() => { const canvas = document.querySelector(%s), pen = canvas.getContext("2d");
  const at = pen.getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
  for (let index = 0; index < at.length; index += 4)
    if (at[index + 3] > 250) seen.add(`${at[index]},${at[index + 1]},${at[index + 2]}`);
  return [...seen]; })()"""
CONTRAST = """(() => {
  const part = value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = name => {
    const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const [red, green, blue] = [1, 3, 5].map(at => part(parseInt(value.slice(at, at + 2), 16) / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  return Object.fromEntries(%s.map(name => {
    const [low, high] = [light(name), light("ground")].sort((a, b) => a - b);
    return [name, (high + 0.05) / (low + 0.05)];
  }));
})()"""


class Run:
    """Checks that come when a test says so."""

    def __init__(self, plan: RunPlan | None = PLAN, job: str = "gpt2") -> None:
        self.checks: list[Check] = []
        self.dashboard: Dashboard = start(lambda: self.checks[-1] if self.checks else None, port=0, job=job, plan=plan)
        self.address = f"http://{self.dashboard.address}/"

    def add(self, *checks: Check) -> None:
        for each in checks:
            self.checks.append(each)
            self.dashboard._recorder.look()


@pytest.fixture
def run() -> Iterator[Run]:
    made = Run()
    yield made
    made.dashboard.close()


def checks(count: int, **changes: Any) -> list[Check]:
    """Of two cards, with memory that differs from check to check and from card to card."""
    return [
        check(number, device(0, allocated=(20 + number % 7) * GIB), device(1, allocated=number << 20), **changes)
        for number in range(count)
    ]


def opened(chromium: Chromium, run: Run, **how: Any) -> Chromium:
    chromium.open(run.address, **how)
    chromium.until("document.getElementById('figures').hidden === false")
    chromium.settle()
    return chromium


def texts(browser: Chromium, selector: str) -> list[str]:
    return browser.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(each => each.innerText.trim())")


def fact(browser: Chromium, name: str) -> str:
    return texts(browser, f"#fact-{name}")[0].replace("\u202f", "")


def beyond(browser: Chromium, run: Run) -> list[str]:
    """All complaints but requests to the page's own server."""
    return [each for each in browser.complaints() if not each.startswith(f"network: {run.address}")]


def press(browser: Chromium, selector: str) -> None:
    browser.js(f"document.querySelector({json.dumps(selector)}).click()")
    browser.settle()


def test_figures_on_the_page_are_those_of_the_last_check(chromium: Chromium, run: Run) -> None:
    run.add(*checks(20))
    page = opened(chromium, run)
    assert texts(page, "h1") == ["gpt2"]
    assert texts(page, "#level") == ["! WARNING"]
    assert texts(page, "#sentence") == [REASON.message]
    assert "take a smaller batch" in texts(page, "#advice")[0]
    expected = {
        "used": "50.00 GiB of 80.00 GiB",
        "reserved": "48.00 GiB",
        "allocated": f"{20 + 19 % 7}.00 GiB",
        "headroom": "20.00 GiB (25.0 %)",
        "fragmentation": "12.5 %",
        "measured": "48.00 GiB",
        "predicted": "52.00 GiB",
        "drift": "6.00 GiB below its upper end",
        "growth": "1.00 KiB per step",
        "failures": "1 · 2",
        "host": "3.00 GiB",
        "step": "190",
    }
    assert {name: fact(page, name) for name in expected} == expected
    assert texts(page, f"{REGIONS} tbody tr td:nth-child(-n+2)") == ["forward", "20.00 GiB", "optimizer", "5.00 GiB"]
    alive = texts(page, f"{HEAT} tbody tr td:nth-child(2)")
    page.js(f"document.querySelector('{HEAT} details').open = true")
    alive = texts(page, f"{HEAT} tbody tr td:nth-child(2)")
    assert alive == [format_bytes(size) for size in reversed(SIZES) if size]
    assert beyond(page, run) == []


def test_a_check_that_comes_is_shown_without_loading_anew(chromium: Chromium, run: Run) -> None:
    run.add(*checks(3))
    page = opened(chromium, run)
    page.js("window.still = true")
    calm = health(device(0), level=Level.NORMAL, reasons=(), demand=GIB)
    run.add(check(3, device(0, allocated=7 * GIB), devices=(calm,), level=Level.NORMAL, recommendations=(), regions=()))
    page.until("document.getElementById('fact-allocated').textContent === '7.00 GiB'", 10)
    assert page.js("window.still")
    assert texts(page, "#level") == ["✓ NORMAL"]
    assert texts(page, "#advice li") == []
    assert texts(page, f"{TURNS} tbody tr td:nth-child(3)") == ["✓ normal", "! warning"]
    assert "number 3" in texts(page, "#pulse")[0]
    assert page.js(f"document.querySelector('{TIMELINE}').dataset.index") == "3"
    assert beyond(page, run) == []


def test_the_page_waits_for_the_first_check(chromium: Chromium, run: Run) -> None:
    chromium.open(run.address)
    chromium.until("document.getElementById('about').textContent !== ''")
    assert texts(chromium, "#pulse") == ["Waiting for the first check …"]
    assert chromium.js("document.getElementById('figures').hidden")
    run.add(*checks(1))
    chromium.until("document.getElementById('figures').hidden === false", 10)
    assert beyond(chromium, run) == []


def test_when_training_ends_the_page_says_so_and_keeps_what_it_knows(chromium: Chromium, run: Run) -> None:
    run.add(*checks(5))
    page = opened(chromium, run)
    assert page.js("document.getElementById('stale').hidden")
    run.dashboard.close()
    page.until("!document.getElementById('stale').hidden", 10)
    assert fact(page, "step") == "40"


def test_the_cursor_tells_every_point_by_mouse_and_by_keys(chromium: Chromium, run: Run) -> None:
    all_checks = checks(50)
    run.add(*all_checks)
    page = opened(chromium, run)
    page.box(f"{TIMELINE} canvas")
    page.js(f"document.querySelector('{TIMELINE} canvas').focus()")
    for key, index in (
        ("Home", 0),
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("ArrowLeft", 1),
        ("ArrowLeft", 0),
        ("ArrowLeft", 0),
    ):
        page.key(key)
        assert page.js(f"document.querySelector('{TIMELINE}').dataset.index") == str(index)
        told = texts(page, f"{TIMELINE} .readout")[0]
        allocated = all_checks[index].reading.devices[0].allocated
        assert f"allocated {format_bytes(allocated)}" in told.replace("\n", " ")
    x, y, width, height = page.box(f"{TIMELINE} canvas")
    page.hover(x + 72 + 0.5 * (width - 82), y + height / 2)
    assert int(page.js(f"document.querySelector('{TIMELINE}').dataset.index")) in (24, 25)
    page.key("End")
    assert page.js(f"document.querySelector('{TIMELINE}').dataset.index") == "49"
    assert beyond(page, run) == []


def test_several_cards_are_chosen_from(chromium: Chromium, run: Run) -> None:
    run.add(*checks(9))
    page = opened(chromium, run)
    assert texts(page, "#devices button") == ["cuda:0", "cuda:1"]
    press(page, "#devices button:last-child")
    assert fact(page, "allocated") == "8.00 MiB"
    assert page.js("document.querySelector('#devices [aria-pressed=true]').innerText") == "cuda:1"
    # The choice outlives the next check.
    run.add(check(9, device(0), device(1, allocated=9 << 20)))
    page.until("document.getElementById('fact-allocated').textContent === '9.00 MiB'", 10)


def test_a_rank_that_has_ended_keeps_its_last_figures(chromium: Chromium, run: Run) -> None:
    run.add(*checks(9))
    page = opened(chromium, run)
    press(page, "#devices button:last-child")
    run.add(check(9, device(0, allocated=5 * GIB)))
    page.until("document.getElementById('pulse').textContent.includes('number 9')", 10)
    assert fact(page, "allocated") == "8.00 MiB"
    assert beyond(page, run) == []


def test_lines_are_drawn_in_their_colours_and_can_be_taken_away(chromium: Chromium, run: Run) -> None:
    run.add(*checks(40))
    page = opened(chromium, run)

    def drawn() -> set[str]:
        canvas = json.dumps(f"{TIMELINE} canvas")
        pixels = set(page.js(PIXELS % canvas))
        names = ("used", "reserved", "allocated", "resident", "plan", "limit")
        value = "getComputedStyle(document.documentElement).getPropertyValue('--{}').trim()"
        hexes = {name: page.js(value.format(name)) for name in names}
        return {
            name
            for name, colour in hexes.items()
            if ",".join(str(int(colour[start : start + 2], 16)) for start in (1, 3, 5)) in pixels
        }

    assert drawn() == {"used", "reserved", "allocated", "plan", "limit"}
    press(page, f"{TIMELINE} .series .reserved")
    press(page, f"{TIMELINE} .series .resident")
    assert drawn() == {"used", "allocated", "resident", "plan", "limit"}


def test_the_time_shown_can_be_narrowed(chromium: Chromium, run: Run) -> None:
    run.add(*(dataclasses.replace(each, number=10 * each.number) for each in checks(1000)))
    page = opened(chromium, run)
    page.js(f"document.querySelector('{TIMELINE} canvas').focus()")
    page.key("Home")
    assert page.js(f"document.querySelector('{TIMELINE}').dataset.index") == "0"
    press(page, f"{TIMELINE} .spans button:first-child")
    # Checks are a second apart here: five minutes are 300 of them.
    assert int(page.js(f"document.querySelector('{TIMELINE}').dataset.index")) == pytest.approx(1000 - 300, abs=2)


def test_the_heatmap_tells_every_cell(chromium: Chromium, run: Run) -> None:
    sizes = [tuple((number + 1) << power if power > 8 else 0 for power in range(20)) for number in range(10)]
    run.add(*(check(number, device(sizes=each)) for number, each in enumerate(sizes)))
    page = opened(chromium, run)
    page.box(f"{HEAT} canvas")
    page.js(f"document.querySelector('{HEAT} canvas').focus()")
    for keys, column, power in ((["Home"], 0, 19), (["ArrowRight", "ArrowDown"], 1, 18), (["ArrowDown"], 1, 17)):
        for key in keys:
            page.key(key)
        told = texts(page, f"{HEAT} .readout")[0]
        between = f"{format_bytes(1 << power - 1)} to {format_bytes(1 << power)}"
        assert f"blocks of {between}: {format_bytes(sizes[column][power])}" in told
    # Bottom left: the smallest blocks of the first check.
    x, y, _, height = page.box(f"{HEAT} canvas")
    page.hover(x + 74, y + height - 30)
    assert format_bytes(sizes[0][9]) in texts(page, f"{HEAT} .readout b")


def test_what_nobody_counts_is_said_and_not_drawn(chromium: Chromium) -> None:
    bare = device(device="cpu", uuid="", reserved=None, inactive=None, sizes=(), allocated=None, peak_allocated=None)
    judged = health(bare, fragmentation=None, measured=None, predicted=None, predicted_high=None, figure="", trend=None)
    run = Run(plan=None)
    run.add(
        *(
            check(n, bare, devices=(judged,), step=None, regions=(), notes=("CPU tensors are not counted",))
            for n in range(3)
        )
    )
    page = opened(chromium, run)
    for part in (HEAT, REGIONS):
        assert page.js(f"document.querySelector('{part} .shown').hidden")
        assert not page.js(f"document.querySelector('{part} .absent').hidden")
    assert texts(page, "#notes li") == ["CPU tensors are not counted"]
    assert texts(page, "#about") == ["No plan: nothing to compare with."]
    assert texts(page, f"{TIMELINE} .series [aria-pressed=true]") == ["this process"]
    assert not texts(page, "#fact-reserved")
    assert beyond(page, run) == []
    run.dashboard.close()


def test_names_from_outside_are_only_ever_text(chromium: Chromium) -> None:
    run = Run(plan=dataclasses.replace(PLAN, target=HOSTILE, gpu=HOSTILE), job=HOSTILE)
    reason = dataclasses.replace(REASON, code=HOSTILE, message=HOSTILE)
    read = device(0, device=HOSTILE, name=HOSTILE, uuid=HOSTILE)
    judged = health(read, reasons=(reason,), figure=HOSTILE)
    told = Finding(code=HOSTILE, severity="warning", message=HOSTILE, fix=HOSTILE)
    regions = (RegionUse(name=HOSTILE, bytes=1), RegionUse(name="__proto__", bytes=2))
    run.add(
        check(
            0,
            read,
            device(1),
            devices=(judged, health(device(1))),
            regions=regions,
            recommendations=(told,),
            notes=(HOSTILE,),
        )
    )
    page = opened(chromium, run)
    assert page.js("window.hurt") is None
    assert page.js("document.querySelectorAll('main script, main img').length") == 0
    assert HOSTILE.strip("\u202e") in texts(page, "h1")[0]
    assert texts(page, f"{REGIONS} tbody tr:first-child td:first-child") == ["__proto__"]
    assert beyond(page, run) == []
    run.dashboard.close()


def test_the_policy_lets_nothing_else_in(chromium: Chromium, run: Run) -> None:
    run.add(*checks(2))
    page = opened(chromium, run)
    page.js("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hurt = 1'}))")
    page.js("fetch('http://127.0.0.1:1/').catch(() => 0)")
    image = "const each = new Image(); each.onerror = () => done(1); each.src = 'https://example.com/x.png'"
    page.js(f"new Promise(done => {{ {image} }})")
    assert len([each for each in beyond(page, run) if "Content Security Policy" in each]) >= 3
    assert page.js("window.hurt") is None


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_both_widths_in_both_themes(chromium: Chromium, run: Run, width: int, dark: bool) -> None:
    run.add(*checks(30))
    page = opened(chromium, run, width=width, dark=dark)
    assert page.js("document.documentElement.scrollWidth") <= width
    assert page.js("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    names = ["good", "warn", "bad", "muted", "accent", "used", "reserved", "allocated", "resident", "plan", "limit"]
    contrast = page.js(CONTRAST % json.dumps(names))
    assert {name: value for name, value in contrast.items() if value < 4.5} == {}
    press(page, "#theme")
    assert page.js("document.documentElement.dataset.theme") == ("light" if dark else "dark")
    assert beyond(page, run) == []


def test_everything_is_reached_with_the_tab_key(chromium: Chromium, run: Run) -> None:
    run.add(*checks(30))
    page = opened(chromium, run)
    reached = []
    for _ in range(40):
        page.key("Tab")
        reached.append(
            page.js("document.activeElement.closest('[data-part]')?.dataset.part ?? document.activeElement.id")
        )
        if page.js("document.activeElement === document.body"):
            break
    assert {"theme", "timeline", "shares", "heatmap", "turns"} <= set(reached)
    focusable = "document.querySelectorAll('main canvas:not([tabindex=\"0\"])').length"
    assert page.js(focusable) == 0


def test_a_button_keeps_the_focus_when_figures_change(chromium: Chromium, run: Run) -> None:
    run.add(*checks(3))
    page = opened(chromium, run)
    page.js(f"document.querySelector('{TIMELINE} .series .used').focus()")
    run.add(check(3, device(0, allocated=3 * GIB), device(1)))
    page.until("document.getElementById('fact-allocated').textContent === '3.00 GiB'", 10)
    assert page.js("document.activeElement.dataset.name") == "used"


def test_scripts_are_allowed_by_their_hashes_alone() -> None:
    assert "'unsafe-inline'" not in shared.policy(styles=["a"], scripts=["b"], connect="'self'")
