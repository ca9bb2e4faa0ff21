"""The reports of ``sweep``: every row told, lines keep their width, JSON obeys its schema."""

from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from rich.cells import cell_len

from memplan.plan.sweep.records import Sweep, SweepRow
from memplan.report.recommend import json as recommend_json
from memplan.report.sweep import json as sweep_json
from memplan.report.sweep import text as sweep
from memplan.units import GIB, Bytes
from tests.contract.goldens import obey
from tests.report.example_recommendations import answer


def example() -> Sweep:
    found = answer()
    assert found.baseline is not None
    nothing = replace(found.proof, ending="nothing_fits", gap=None, least_bytes=Bytes(46 * GIB))
    cut = replace(found.proof, ending="not_found", gap=None, proved=3)
    rows = (
        SweepRow(job="as it is", gpu="h200", gpus=1, answer=replace(found, baseline=found.rows[0]), seconds=2.0),
        SweepRow(job="llama-8b", gpu="rtx-4090", gpus=8, answer=found, seconds=3.0),
        SweepRow(job="too large", gpu="t4", gpus=1, answer=replace(found, rows=(), proof=nothing), seconds=4.0),
        SweepRow(job="too soon", gpu="t4", gpus=1, answer=replace(found, rows=(), proof=cut), seconds=4.0),
        SweepRow(job="broken", gpu="t4", gpus=1, answer=None, error="no such weights (model.py:5)", seconds=1.0),
    )
    return Sweep(project=Path("memplan.toml"), backend="dask", rows=rows, notes=("a note",), seconds=12.0)


def text(answer: Sweep, width: int = 80, *, quiet: bool = False) -> str:
    return "\n".join(line.plain for line in sweep.render(answer, width=width, quiet=quiet))


EXPECTED = """\
  job        gpu           fits             peak  samples/s
✓ as it is   h200          as given    20.00 GiB       6.67
    --checkpoint full
✓ llama-8b   8 x rtx-4090  changed     20.00 GiB       6.67
    --checkpoint full
✗ too large  t4            no
    NOTHING FITS (proved) least peak of the whole space is at least 46.00 GiB
? too soon   t4            not found
    NOT FOUND in 3 of 12
? broken     t4            unknown
    no such weights (model.py:5)

notes
  - a note

✗ NO ANSWER  for 3 of 5"""


def test_the_whole_report() -> None:
    head, _, rest = text(example()).partition("\n\n")
    assert head.endswith("5 searches on dask in 12.0 s                         memplan.toml")
    assert rest == EXPECTED


def test_quiet_leaves_the_figures() -> None:
    lines = text(example(), quiet=True).split("\n")
    assert [line for line in EXPECTED.split("\n") if line and not line.startswith((" ", "notes"))] == [
        line for line in lines if line and not line.startswith(" ")
    ]
    assert not any("--checkpoint" in line for line in lines)


def test_all_fit() -> None:
    rows = example().rows[:2]
    assert text(replace(example(), rows=rows)).endswith("✓ ALL FIT  2 of 2")
    assert replace(example(), rows=rows).exit_code == 0
    assert [row.state for row in example().rows] == ["as given", "changed", "no", "no", "unknown"]
    assert example().exit_code == 3
    assert replace(example(), rows=(*rows, example().rows[3])).exit_code == 4


@pytest.mark.parametrize("width", [40, 60, 80, 120, 300])
def test_lines_keep_their_width(width: int) -> None:
    long = replace(example().rows[1], job="j" * 200, gpu="\x1b[31m" + "g" * 90)
    lines = text(replace(example(), rows=(long, *example().rows)), width).split("\n")
    assert max(map(cell_len, lines)) <= max(60, min(width, 100))
    assert not any("\x1b" in line for line in lines)


def test_json_obeys_its_schema() -> None:
    content = sweep_json.DOCUMENT.plain(example())
    obey("sweep", content)
    assert [row["fits"] for row in content["rows"]] == ["as given", "changed", "no", "no", "unknown"]
    assert content["rows"][1]["recommendation"] == recommend_json.DOCUMENT.plain(answer())
    content["rows"][4]["error"] = ""
    with pytest.raises(jsonschema.ValidationError):
        obey("sweep", content)
