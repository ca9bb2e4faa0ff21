"""The reports of ``batch``: every figure comes from the answer, lines keep their width, JSON obeys its schema."""

import json
from dataclasses import replace

import jsonschema
import pytest
from rich.cells import cell_len

from memplan.hardware.catalog import load_profile
from memplan.plan.batch.records import BatchAnswer
from memplan.report.batch import json as batch_json
from memplan.report.batch import text as batch
from memplan.units import format_bytes
from tests.contract.goldens import obey
from tests.report.example_batches import DRAWN, NOTHING, REFUSED, answer

PROFILE = load_profile("rtx-4090")


def _text(*answers: BatchAnswer, width: int = 80) -> str:
    found = [(PROFILE, each) for each in answers]
    return "\n".join(line.plain for line in batch.render("preset:gpt2", found, width=width, explain=True))


@pytest.mark.parametrize("width", [20, 60, 100])
def test_lines_keep_their_width(width: int) -> None:
    assert max(cell_len(line) for line in _text(answer(), NOTHING, width=width).splitlines()) <= max(width, 60)


def test_every_point_stands_with_what_is_known_of_it() -> None:
    rows = {line.split()[0]: line for line in _text(answer()).splitlines() if line.split()[:1]}
    for point in answer().curve:
        row = rows[str(point.value)]
        assert format_bytes(point.device_bytes) in row
        assert ("does not fit" in row) == (not point.fits)
        assert ("by its sizes" in row) == (not point.traced)


def test_the_verdict_is_what_can_be_typed() -> None:
    assert "--batch-size 11" in _text(answer())
    assert "--seq-len 11" in _text(replace(answer(), variable="seq_len"))
    assert "NOTHING FITS" in _text(NOTHING)
    (line,) = batch.render("preset:gpt2", [(PROFILE, answer())], quiet=True)
    assert "--batch-size 11" in line.plain


def test_a_refusal_is_said() -> None:
    assert "one more is refused by the program itself" in _text(REFUSED)
    assert "at 12: IndexError: 12" in _text(REFUSED)


def test_the_chance_of_drawn_lengths_stands_beside_the_answer() -> None:
    words = " ".join(_text(DRAWN).split())
    assert "at 11 25.0 % [20.0 % to 30.0 %] run out of memory within 1,000 steps of uniform:1-9" in words
    assert "at 10 nobody knows what drawn lengths take" in words
    tails = json.loads(batch_json.render("preset:gpt2", [(PROFILE, DRAWN)]))["tails"]
    assert [(each["gpu"], each["value"]) for each in tails] == [("rtx-4090", 11), ("rtx-4090", 10)]
    assert (tails[0]["risk"]["chance"], tails[1]["risk"]) == (0.25, None)


@pytest.mark.parametrize("given", [answer(), NOTHING, REFUSED, DRAWN])
def test_json_obeys_its_schema(given: BatchAnswer) -> None:
    document = json.loads(batch_json.render("preset:gpt2", [(PROFILE, given)]))
    obey("batch", document)
    (result,) = document["results"]
    assert (result["value"], result["result"]) == (given.value, given.ended)
    assert [point["device_bytes"] for point in result["curve"]] == [point.device_bytes for point in given.curve]
    broken = document | {"results": [result | {"result": "perhaps"}]}
    with pytest.raises(jsonschema.ValidationError):
        obey("batch", broken)
