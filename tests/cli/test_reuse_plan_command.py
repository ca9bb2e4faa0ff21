"""``memplan reuse-plan`` as a user types it: real targets, real solvers, real files."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from memplan.cli.app import main
from memplan.plan.reuse.csv_file import read_problem
from tests.contract.goldens import obey
from tests.support.targets import NET

# Five buffers that fit 12 and not 11: at moment 10 twelve units are alive.
BUFFERS = "id,lower,upper,size\na,0,10,4\nb,0,12,4\nc,10,20,4\nd,9,14,4\n"
DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture
def target(tmp_path: Path) -> str:
    file = tmp_path / "net.py"
    file.write_text(NET)
    return str(file)


@pytest.fixture
def buffers(tmp_path: Path) -> Path:
    file = tmp_path / "buffers.csv"
    file.write_text(BUFFERS)
    return file


@pytest.mark.parametrize("mode", ["train", "inference"])
@pytest.mark.parametrize("gpu", ["h100-80g", pytest.param("cpu", marks=pytest.mark.slow)])
def test_a_step_is_placed_at_its_bound_and_written_in_every_format(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str, gpu: str
) -> None:
    picture, table, page = tmp_path / "arena.svg", tmp_path / "offsets.csv", tmp_path / "arena.html"
    words = ["--gpu", gpu, "--mode", mode, "--batch-size", "64", "--json"]
    assert main(["reuse-plan", target, *words, "-f", f"svg={picture}", "-f", f"csv={table}", "-f", f"html={page}"]) == 0
    found = json.loads(capsys.readouterr().out)
    obey("reuse-plan", found)
    assert found["result"] == "optimal"
    assert found["height_bytes"] == found["lower_bound_bytes"] < found["total_bytes"]
    if gpu != "cpu":  # There, nothing is cached: memory is reserved as it is asked for.
        assert found["height_bytes"] + found["persistent_bytes"] <= found["reserved_peak_bytes"]
    assert ET.parse(picture).getroot().tag.endswith("svg")
    drawn = picture.read_text().split("</style>")[1]  # The page has colours of its own, which follow its theme.
    assert drawn in page.read_text()
    problem = read_problem(table)
    assert [buffer.offset for buffer in problem.buffers] == [buffer["offset_bytes"] for buffer in found["buffers"]]
    assert {buffer["label"] for buffer in found["buffers"]} >= {"activation"} if mode == "train" else {"temporary"}


def test_a_file_of_buffers(buffers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reuse-plan", str(buffers), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["height_bytes"], found["lower_bound_bytes"], found["result"]) == (12, 12, "optimal")
    assert main(["reuse-plan", str(buffers), "--capacity", "12"]) == 0
    assert "OPTIMAL  arena 12 B" in capsys.readouterr().out


def test_methods_side_by_side(buffers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reuse-plan", str(buffers), "--method", "all", "--json", "--time-limit", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    obey("reuse-plan", found)
    rows = {row["method"]: row for row in found["methods"]}
    assert rows["ilp"]["height_bytes"] == rows["search"]["height_bytes"] == found["height_bytes"] == 12
    assert rows["colour"]["height_bytes"] == 12
    assert main(["reuse-plan", str(buffers), "--method", "colour"]) == 0
    assert "found by whole slots" in capsys.readouterr().out


def test_a_capacity_too_small_exits_3_and_says_why(buffers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reuse-plan", str(buffers), "--capacity", "11"]) == 3
    out = capsys.readouterr().out
    assert "INFEASIBLE" in out
    assert "12" in out


@pytest.mark.skipif(not (DATA / "snapshots").is_dir(), reason="MEMPLAN_DATA has no snapshots")
def test_a_real_snapshot_in_less_than_was_reserved(capsys: pytest.CaptureFixture[str]) -> None:
    file = DATA / "snapshots" / "wedsonlin_medium_128_inference_memory_snapshot.pickle"
    assert main(["reuse-plan", str(file), "--json", "--time-limit", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["source"] == "snapshot"
    assert found["height_bytes"] + found["persistent_bytes"] < found["reserved_peak_bytes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.csv"], "there is no file 'nowhere.csv'"),
        (["{buffers}", "--gpu", "h100-80g", "--batch-size", "2"], "--gpu, --batch-size would change nothing"),
        (["{buffers}", "--capacity", "much"], "--capacity"),
        (["{buffers}", "--method", "color"], "--method must be one of auto, search,"),
        (["{buffers}", "--time-limit", "nan"], "--time-limit must be a number of seconds above 0"),
        (["{buffers}", "-f", "png"], "--format must be one of"),
        (["{target}", "--gpu", "h9000"], "h9000"),
    ],
)
def test_wrong_words_exit_2_and_say_what(
    words: list[str], said: str, target: str, buffers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reuse-plan", *(word.format(buffers=buffers, target=target) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert said in err


def test_a_malformed_file_names_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.csv"
    file.write_text("id,lower,upper,size\na,0,10,4\nb,7,7,1\n")
    assert main(["reuse-plan", str(file)]) == 2
    assert "wrong.csv:3" in capsys.readouterr().err
