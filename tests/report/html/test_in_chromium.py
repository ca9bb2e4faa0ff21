"""The page as a reader meets it: in a real browser, from a file."""

import base64
import dataclasses
import json
import random
import re
import zlib
from collections import Counter
from pathlib import Path

import pytest

from memplan import page as shared_page
from memplan.measure.records import RecordedEstimate
from memplan.report.html.estimate import render
from memplan.units import format_bytes
from tests.report.estimate_strategies import CATEGORIES
from tests.report.html.chromium import Chromium
from tests.report.html.drawn import CHART, MAP, OWNERS, TREE, colour_of, colours, texts

HELPERS = Path(shared_page.__file__).parent / "assets" / "helpers.js"
TILES = f"[...document.querySelectorAll('{TREE} .treemap button')]"
PAIRS = [
    *(("ink", "ground"), ("muted", "ground"), ("muted", "panel"), ("accent", "ground")),
    *((verdict, "ground") for verdict in ("good", "warn", "bad")),
    *(("on-colour", category) for category in CATEGORIES if category != "fragmentation"),
]
"""Text and what it stands on."""
# Relative luminance and contrast as WCAG 2.2 defines them.
CONTRAST = """(() => {
  const part = value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = name => {
    const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const [red, green, blue] = [1, 3, 5].map(at => part(parseInt(value.slice(at, at + 2), 16) / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  return Object.fromEntries(%s.map(([one, other]) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return [`${one} on ${other}`, (high + 0.05) / (low + 0.05)];
  }));
})()"""


@pytest.fixture
def shown(chromium: Chromium, page: Path) -> Chromium:
    chromium.open(page.as_uri())
    return chromium


def embedded(browser: Chromium) -> dict:
    packed = browser.js("document.getElementById('memplan-data').textContent")
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def view(browser: Chromium) -> tuple[int, int]:
    return browser.js(f"(data => [+data.from, +data.to])(document.querySelector('{CHART}').dataset)")


def inside_chart(browser: Chromium, across: float) -> tuple[float, float]:
    """A point of the chart: 0 is the first event shown, 1 the last."""
    x, y, width, height = browser.box(f"{CHART} canvas.main")
    return x + 62 + across * (width - 72), y + height / 2


def test_a_page_asks_nothing_of_anyone_and_complains_of_nothing(shown: Chromium) -> None:
    for selector in (f"{CHART} canvas.main", f"{MAP} canvas", f"{TREE} .treemap", f"{OWNERS} table"):
        x, y, width, height = shown.box(selector)
        shown.hover(x + width / 2, y + min(height, 300) / 2)
    shown.pdf()
    assert shown.complaints() == []


def test_the_policy_holds_against_whatever_else_is_put_into_the_page(shown: Chromium) -> None:
    # A test of the tests: what the policy forbids is seen as a complaint.
    shown.js("document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\" onclick=\"1\">x</p>')")
    shown.js("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hurt = 1'}))")
    image = "const each = new Image(); each.onerror = () => done(1); each.src = 'https://example.com/x.png'"
    shown.js(f"new Promise(done => {{ {image} }})")
    assert len([each for each in shown.complaints() if "Content Security Policy" in each]) >= 3
    assert shown.js("window.hurt") is None


def test_figures_in_the_page_are_those_of_its_json(shown: Chromium, recorded: tuple[RecordedEstimate, ...]) -> None:
    document, estimate = embedded(shown), recorded[0].estimate
    assert document["peak"]["device_bytes"] == estimate.peak.device_bytes
    for category, size in document["breakdown"].items():
        cells = texts(shown, f"[data-part=composition] td[data-category={category}]")
        assert cells == ([format_bytes(size)] if size else [])
    assert texts(shown, "[data-part=composition] td[data-category=peak]") == [format_bytes(estimate.peak.device_bytes)]
    timeline = document["timeline"]
    assert max(timeline["curve"]["allocated_bytes"]) == document["peak"]["allocated_bytes"]
    words = texts(shown, f"{CHART} .readout strong")[0]
    assert words.startswith("the peak")
    assert f"{format_bytes(document['peak']['allocated_bytes'])} allocated" in words


def test_scripts_write_bytes_as_python_does(shown: Chromium) -> None:
    chosen = random.Random(7)
    sizes = [0, 1, 1023, 1024, 1025, (1 << 20) - 1, (1 << 30) - 52, (1 << 30) - 54, 85_014_544_384, 1 << 41, -5 << 30]
    sizes += [chosen.randrange(1 << chosen.randrange(1, 50)) for _ in range(3000)]
    sizes += [eighths << 17 for eighths in range(1, 2000, 2)]  # Ties: 0.125 MiB, 0.375 MiB …
    shown.js("document.querySelector('[data-part=owners] .each').click()")
    owners = embedded(shown)["owners"]
    largest = max(owners, key=lambda owner: owner["bytes"])
    assert texts(shown, f"{OWNERS} tbody tr:first-child td")[0] == format_bytes(largest["bytes"])
    functions = "".join(
        "function " + HELPERS.read_text().split(f"function {name}")[1].split("\n}\n")[0].join([name, "\n}\n"])
        for name in ("words", "twoDigits")
    )
    found = shown.js(f"(() => {{ {functions} return {json.dumps(sizes)}.map(words); }})()")
    assert found == [format_bytes(size) for size in sizes]


def test_hovering_tells_who_holds_the_memory_then(shown: Chromium) -> None:
    timeline = embedded(shown)["timeline"]
    before = texts(shown, f"{CHART} .readout")
    shown.hover(*inside_chart(shown, 0.6))
    assert texts(shown, f"{CHART} .readout") != before
    event = int(shown.js(f"document.querySelector('{CHART}').dataset.event"))
    sample = timeline["curve"]["event"].index(event)
    told = texts(shown, f"{CHART} .readout")[0]
    assert format_bytes(timeline["curve"]["allocated_bytes"][sample]) in told
    by_category = [held[sample] for held in timeline["curve"]["categories"].values() if held[sample]]
    lines = texts(shown, f"{CHART} .readout table:first-child td.figure")
    assert sorted(lines) == sorted(map(format_bytes, by_category))
    alive: Counter[tuple[str, str]] = Counter()
    buffers, owners = timeline["buffers"], timeline["owners"]
    for owner, size, start, end in zip(*(buffers[name] for name in ("owner", "bytes", "start", "end")), strict=True):
        if start <= event < end:
            module = re.sub(r"\d+", "*", owners["module"][owner]) or owners["name"][owner].removesuffix(".default")
            alive[module, owners["category"][owner]] += size
    largest = texts(shown, f"{CHART} .readout table:last-child td.figure")
    assert largest[:-1] == [format_bytes(size) for _, size in alive.most_common(8)][: len(largest) - 1]
    assert "blocks.*.up" in told


def test_dragging_the_wheel_and_keys_change_what_is_shown(shown: Chromium) -> None:
    whole = view(shown)
    shown.drag(inside_chart(shown, 0.25), inside_chart(shown, 0.75))
    dragged = view(shown)
    middle = (whole[1] - whole[0]) / 2
    assert dragged == pytest.approx((middle / 2, 1.5 * middle), abs=2 + middle / 50)
    x, y = inside_chart(shown, 0.5)
    shown.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)
    shown.settle()
    wheeled = view(shown)
    assert wheeled[1] - wheeled[0] < 0.7 * (dragged[1] - dragged[0])
    shown.key("ArrowRight", modifiers=8)
    assert view(shown)[0] > wheeled[0]
    shown.key("-")
    assert view(shown)[1] - view(shown)[0] > wheeled[1] - wheeled[0]
    shown.key("Home")
    assert view(shown) == whole
    shown.key("p")
    peak = embedded(shown)["timeline"]["peak_event"]
    assert view(shown)[0] <= peak <= view(shown)[1]
    assert view(shown) != whole


def test_the_wheel_belongs_to_the_page_until_the_chart_has_the_focus(shown: Chromium) -> None:
    whole = view(shown)
    x, y = inside_chart(shown, 0.5)
    shown.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)
    shown.settle()
    assert view(shown) == whole


def test_arrow_keys_move_the_cursor_from_sample_to_sample(shown: Chromium) -> None:
    shown.box(f"{CHART} canvas.main")
    shown.js(f"document.querySelector('{CHART} canvas.main').focus()")
    events = embedded(shown)["timeline"]["curve"]["event"]
    at = events.index(int(shown.js(f"document.querySelector('{CHART}').dataset.event")))
    shown.key("ArrowLeft")
    assert int(shown.js(f"document.querySelector('{CHART}').dataset.event")) == events[at - 1]
    assert f"event {events[at - 1]}" in texts(shown, f"{CHART} .readout")[0].replace("\u202f", "")


def test_everything_is_reached_with_the_tab_key_and_is_seen_to_be(shown: Chromium) -> None:
    reached = []
    for _ in range(80):
        shown.key("Tab")
        name = shown.js("document.activeElement.tagName + '.' + document.activeElement.className")
        outline = shown.js("getComputedStyle(document.activeElement).outlineStyle")
        if name.startswith("BODY"):
            break
        reached.append(name)
        assert outline != "none", name
    assert {"CANVAS.main", "INPUT.", "SUMMARY.", "BUTTON.each"} <= set(reached)
    assert reached.count("CANVAS.") == 1


def test_the_chart_is_drawn_in_the_colours_of_its_categories(shown: Chromium) -> None:
    drawn = colours(shown, f"{CHART} canvas.main")
    for name in ("parameter", "gradient", "optimizer_state", "activation"):
        assert colour_of(shown, name) in drawn, name
    mapped = colours(shown, f"{MAP} canvas")
    assert colour_of(shown, "optimizer_state") in mapped


def test_the_map_tells_blocks_and_shows_a_segment_alone(shown: Chromium) -> None:
    shown.box(f"{MAP} canvas")
    x, y, width, _ = shown.box(f"{MAP} canvas")
    shown.hover(x + 5, y + 5)
    first = texts(shown, f"{MAP} .readout")[0]
    timeline = embedded(shown)["timeline"]
    largest = max(sum(segment["blocks"]["bytes"]) for segment in timeline["segments"] if not segment["small"])
    assert f"in a segment of {format_bytes(largest)} (large pool, stream 0)" in first
    shown.hover(x + width - 5, y + 5)
    assert texts(shown, f"{MAP} .readout")[0] != first
    shown.click(x + 5, y + 5)
    alone = shown.js(f"document.querySelector('{MAP}').dataset.segment")
    assert sum(timeline["segments"][int(alone)]["blocks"]["bytes"]) == largest
    shown.key("Escape")
    assert shown.js(f"document.querySelector('{MAP}').dataset.segment") == ""
    shown.key("ArrowDown")
    shown.key("Enter")
    assert shown.js(f"document.querySelector('{MAP}').dataset.segment") not in ("", alone)


def test_the_tree_holds_every_byte_and_opens_modules(shown: Chromium) -> None:
    document = embedded(shown)
    top = texts(shown, f"{TREE} .readout strong")[0]
    assert format_bytes(document["peak"]["device_bytes"]) in top
    assert "100.0 %" in top
    assert "blocks" in " ".join(texts(shown, f"{TREE} .treemap button"))
    shown.box(f"{TREE} .treemap")
    shown.js(f"{TILES}.find(each => each.getAttribute('aria-label').startsWith('blocks:')).focus()")
    told = texts(shown, f"{TREE} .readout strong")[0]
    blocks = sum(owner["bytes"] for owner in document["owners"] if owner["module"].startswith("blocks."))
    assert told.startswith(f"blocks: {format_bytes(blocks)}")
    shown.key("Enter")
    assert shown.js(f"document.querySelector('{TREE}').dataset.module") == "blocks"
    labels = shown.js(f"{TILES}.map(each => each.getAttribute('aria-label'))")
    assert any(label.startswith("blocks.3") for label in labels)
    shown.key("Escape")
    assert shown.js(f"document.querySelector('{TREE}').dataset.module") == ""


def test_tiles_of_equal_modules_are_equal(shown: Chromium) -> None:
    shown.js(f"{TILES}.find(each => each.getAttribute('aria-label').startsWith('blocks:')).click()")
    boxes = shown.js(f"{TILES}.map(each => [each.getAttribute('aria-label'), each.offsetWidth * each.offsetHeight])")
    areas = [area for label, area in boxes if re.match(r"blocks\.\d:", label)]
    assert len(areas) == 4
    assert max(areas) < 1.1 * min(areas)
    _, _, width, height = shown.box(f"{TREE} .treemap")
    assert sum(areas) == pytest.approx(width * height, rel=0.05)


def test_owners_are_sorted_filtered_and_shown_one_by_one(shown: Chromium) -> None:
    document = embedded(shown)
    first = texts(shown, f"{OWNERS} tbody tr:first-child td")[0]
    grouped = len(texts(shown, f"{OWNERS} tbody tr"))
    shown.js(f"document.querySelector('{OWNERS} .each').click()")
    assert len(texts(shown, f"{OWNERS} tbody tr")) == min(100, len(document["owners"])) > grouped
    shown.js(f"document.querySelector('{OWNERS} th[data-key=bytes] button').click()")
    smallest = min(owner["bytes"] for owner in document["owners"])
    assert texts(shown, f"{OWNERS} tbody tr:first-child td")[0] == format_bytes(smallest) != first
    assert shown.js(f"document.querySelector('{OWNERS} th[data-key=bytes]').getAttribute('aria-sort')") == "ascending"
    typed = "box.value = 'HEAD'; box.dispatchEvent(new Event('input'))"
    shown.js(f"(box => {{ {typed} }})(document.querySelector('{OWNERS} input'))")
    head = [owner for owner in document["owners"] if "head" in owner["module"]]
    assert len(texts(shown, f"{OWNERS} tbody tr")) == len(head) > 0
    assert format_bytes(sum(owner["bytes"] for owner in head)) in texts(shown, f"{OWNERS} .found")[0]


def test_owners_before_the_script_are_those_after_it(shown: Chromium, page: Path) -> None:
    told = texts(shown, f"{OWNERS} tbody tr td:nth-child(3)")
    shown.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        shown.send("Page.navigate", url="about:blank")
        shown.send("Page.navigate", url=page.as_uri())
        shown.until("document.readyState === 'complete'")
        without = texts(shown, f"{OWNERS} tbody tr td:nth-child(3)")
        assert sorted(without) == sorted(told)
        assert not shown.js("[...document.querySelectorAll('.needs-script')].some(each => each.checkVisibility())")
        assert texts(shown, "h1") != []
    finally:
        shown.send("Emulation.setScriptExecutionDisabled", value=False)


def test_dark_is_followed_and_chosen(chromium: Chromium, page: Path) -> None:
    chromium.open(page.as_uri(), dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = chromium.js(ground)
    assert "16, 20, 24" in dark
    chromium.js("document.getElementById('theme').click()")
    assert chromium.js(ground) == "rgb(255, 255, 255)"
    chromium.scheme(dark=False)
    chromium.open(page.as_uri())
    assert chromium.js(ground) == "rgb(255, 255, 255)"
    light = colours(chromium, f"{CHART} canvas.main")
    chromium.js("document.getElementById('theme').click()")
    chromium.settle()
    assert chromium.js(ground) == dark
    assert colours(chromium, f"{CHART} canvas.main") != light
    assert chromium.complaints() == []


def test_text_is_readable_in_both_themes(chromium: Chromium, page: Path) -> None:
    for dark in (False, True):
        chromium.open(page.as_uri(), dark=dark)
        # WCAG 2.2, 1.4.3: 4.5 to 1 for text.
        assert {name: ratio for name, ratio in chromium.js(CONTRAST % json.dumps(PAIRS)).items() if ratio < 4.5} == {}


@pytest.mark.parametrize("width", [320, 400, 768, 1280, 2000])
def test_no_width_needs_scrolling_to_the_side(chromium: Chromium, page: Path, width: int) -> None:
    chromium.open(page.as_uri(), width=width)
    assert chromium.js("document.documentElement.scrollWidth") <= width
    assert chromium.complaints() == []


def test_what_is_downloaded_is_what_is_embedded(shown: Chromium, tmp_path: Path) -> None:
    shown.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    shown.js("document.getElementById('download').click()")
    shown.until("true")
    for _ in range(200):
        if (tmp_path / "memplan.json").exists():
            break
        shown.settle()
    assert json.loads((tmp_path / "memplan.json").read_text()) == embedded(shown)
    assert shown.complaints() == []


def test_several_gpus_are_told_one_at_a_time_and_printed_together(
    chromium: Chromium, recorded: tuple[RecordedEstimate, ...], tmp_path: Path
) -> None:
    (tmp_path / "two.html").write_text(render(recorded), encoding="utf-8")
    chromium.open((tmp_path / "two.html").as_uri())
    visible = "[...document.querySelectorAll('article')].filter(each => each.checkVisibility()).map(each => each.id)"
    assert chromium.js(visible) == ["h100-80g"]
    chromium.js("document.querySelector('a[data-article=rtx-3070]').click()")
    chromium.until(f"({visible}).join() === 'rtx-3070'")
    chromium.settle()
    assert "rtx-3070" in chromium.js("document.querySelector('tr[aria-current=true]').innerText")
    assert colour_of(chromium, "parameter") in colours(chromium, "article#rtx-3070 canvas.main")
    chromium.send("Emulation.setEmulatedMedia", media="print")
    assert chromium.js(visible) == ["h100-80g", "rtx-3070"]
    assert chromium.complaints() == []


def test_a_name_that_is_markup_stays_a_name(
    chromium: Chromium, recorded: tuple[RecordedEstimate, ...], tmp_path: Path
) -> None:
    evil = "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>"
    result = recorded[0]
    owner = dataclasses.replace(result.estimate.owners[0], module=evil, source=evil)
    holder = result.digest.holders[0]._replace(module=evil, name=evil, source=evil)
    changed = dataclasses.replace(
        result,
        estimate=dataclasses.replace(
            result.estimate, target=evil, owners=(owner, *result.estimate.owners[1:]), assumptions=(evil,),
            options={"batch_size": evil}, provenance={evil: evil}, not_modelled=(evil,),
        ),
        digest=dataclasses.replace(result.digest, holders=(holder, *result.digest.holders[1:])),
    )  # fmt: skip
    (tmp_path / "evil.html").write_text(render([changed]), encoding="utf-8")
    chromium.open((tmp_path / "evil.html").as_uri())
    chromium.hover(*inside_chart(chromium, 0.01))
    x, y, *_ = chromium.box(f"{MAP} canvas")
    chromium.hover(x + 5, y + 5)
    assert chromium.js("window.hurt") is None
    assert chromium.js("document.images.length") == 0
    assert evil in chromium.js("document.querySelector('h1').textContent")
    assert evil in texts(chromium, f"{OWNERS} tbody")[0]
    assert chromium.complaints() == []
