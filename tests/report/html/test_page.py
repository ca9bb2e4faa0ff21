"""The page as text: whatever the records allow makes one that is whole, escaped and closed to the outside."""

import dataclasses
import json
import re
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.measure.document import ESTIMATE, TIMELINE
from memplan.measure.records import Estimate, RecordedEstimate
from memplan.report import html
from memplan.report.html.estimate import render
from memplan.report.html.page import SCRIPTS
from memplan.report.html.view import anchors
from memplan.text import clean
from tests.report.estimate_strategies import estimates
from tests.report.example_estimates import CPU, FITS, OOM, UNKNOWN, make_estimate
from tests.report.html.reader import Reader

LAW = settings(max_examples=40, deadline=None)
ASSETS = Path(html.__file__).parent / "assets"


def page_of(*found: Estimate) -> Reader:
    return Reader(render([RecordedEstimate(estimate=estimate, history=None) for estimate in found]))


@given(st.lists(estimates(), min_size=1, max_size=3))
@LAW
def test_any_estimates_make_a_whole_page(found: list[Estimate]) -> None:
    reader = page_of(*found)
    data = json.loads(reader.report)
    documents = data["estimates"] if len(found) > 1 else [data]
    assert documents == json.loads(json.dumps([ESTIMATE.plain(estimate) for estimate in found]))
    assert " ".join(clean(found[0].target).split()) in reader.words


@given(estimates())
@LAW
def test_nothing_in_a_page_reaches_out_of_it_or_runs(estimate: Estimate) -> None:
    reader = page_of(estimate)
    names = {name for _, name, _ in reader.attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    assert not names & {"src", "srcset", "action", "formaction", "data", "xlink:href"}
    assert all(value.startswith("#") for tag, name, value in reader.attributes if name == "href")
    assert [tag for tag, name, _ in reader.attributes if tag == "link"] == []


def test_the_policy_lets_in_the_one_script_and_the_one_style() -> None:
    reader = page_of(FITS)
    _, script = reader.content["script"]
    (style,) = reader.content["style"]
    hashes = {each: "sha256-" + b64encode(sha256(each.encode()).digest()).decode() for each in (script, style)}
    directives = dict(part.strip().split(" ", 1) for part in reader.policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "style-src": f"'{hashes[style]}'",
        "script-src": f"'{hashes[script]}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_a_digest_is_embedded_as_its_plain_data(recorded: tuple[RecordedEstimate, ...]) -> None:
    reader = Reader(render(recorded[:1]))
    expected = ESTIMATE.plain(recorded[0].estimate) | {"timeline": TIMELINE.plain(recorded[0].digest)}
    assert json.loads(reader.report) == json.loads(json.dumps(expected))


def test_without_a_history_there_is_neither_timeline_nor_map() -> None:
    page = render([RecordedEstimate(estimate=FITS, history=None)])
    assert 'data-part="timeline"' not in page
    assert 'data-part="map"' not in page
    assert 'data-part="treemap"' in page


def test_an_unknown_verdict_shows_no_figure() -> None:
    reader = page_of(UNKNOWN)
    assert "UNKNOWN" in reader.words
    assert "flash_attn::varlen" in reader.words
    assert not re.search(r"\d (GiB|MiB|KiB)", reader.words)


def test_verdicts_of_all_gpus_stand_above_the_first() -> None:
    reader = page_of(FITS, OOM, make_estimate(gpu=CPU))
    assert re.search(r"✓ FITS h100-80g .* ✗ OOM a100-40g .* ✓ FITS cpu no fixed limit", reader.words)
    anchors_of_links = [value for tag, name, value in reader.attributes if (tag, name) == ("a", "href")]
    ids = [value for tag, name, value in reader.attributes if (tag, name) == ("article", "id")]
    assert [f"#{key}" for key in ids] == anchors_of_links[1:]


def test_advice_says_what_it_saves() -> None:
    words = page_of(OOM).words
    assert "--checkpoint full --batch-size 2 38.00 GiB 32.49 GiB +31 %" in words
    assert "--optimizer adamw-8bit 47.00 GiB 23.49 GiB same" in words


@given(estimates())
@LAW
def test_the_bar_is_as_long_as_its_peak(estimate: Estimate) -> None:
    page = render([RecordedEstimate(estimate=estimate, history=None)])
    found = re.findall(r'<rect class="\w+" data-category="(\w+)" x="([\d.]+)" y="8" width="([\d.]+)"', page)
    known = str(estimate.verdict) != "unknown"
    assert [name for name, _, _ in found] == [name for name, size in estimate.breakdown.items() if size and known]
    scale = max(estimate.peak.device_bytes, estimate.peak.high_bytes, estimate.gpu.usable_bytes)
    for (_, x, width), (_, following, _) in pairwise(found):
        assert float(x) + float(width) == pytest.approx(float(following), abs=0.02)
    if found:
        assert float(found[-1][1]) + float(found[-1][2]) == pytest.approx(
            1000 * estimate.peak.device_bytes / scale, abs=0.02
        )


@given(st.lists(st.text(max_size=8), max_size=8))
def test_anchors_are_distinct_and_plain(names: list[str]) -> None:
    found = anchors(names)
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", anchor) for anchor in found)


def test_a_page_of_thousands_of_owners_stays_small() -> None:
    owner = FITS.owners[0]
    owners = tuple(dataclasses.replace(owner, module=f"model.layers.{n}.mlp.down_proj") for n in range(5000))
    assert len(render([RecordedEstimate(estimate=make_estimate(owners=owners), history=None)])) < 1 << 20


def test_every_script_is_part_of_the_page_and_small_enough_to_read() -> None:
    assert {path.stem for path in ASSETS.glob("*.js")} == set(SCRIPTS)
    for path in ASSETS.glob("*.js"):
        text = path.read_text()
        assert len(text.splitlines()) < 600
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://", text), (
            path
        )


def test_the_page_takes_little_room_beside_the_report_that_it_carries(recorded: tuple[RecordedEstimate, ...]) -> None:
    page = Reader(render(recorded[:1]))
    assert len(page.content["script"][0]) < len(page.report) / 4
