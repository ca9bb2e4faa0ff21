"""``memplan snapshot``: what it prints, what it writes, and how it fails."""

import json

import pytest
from syrupy.assertion import SnapshotAssertion

from memplan.cli.app import main
from memplan.replay.records import Request
from memplan.units import MIB
from tests.snapshot.snapshot_files import event, expandable_snapshot_of, small_program, snapshot_of, write

STREAM = [
    Request("alloc", 0, 100 * MIB, 0), Request("free", 0, 0, 0),
    Request("alloc", 1, 2 * MIB, 0), Request("alloc", 2, 99 * MIB, 0),
]  # fmt: skip
"""2 MiB sit in a segment of 100 MiB, so that 99 MiB need a second one."""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command on a content in an empty folder; gives exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def command(content, *words):
        write(tmp_path, content)
        code = main(["snapshot", "snapshot.pickle", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


def test_the_text(run, snapshot: SnapshotAssertion):
    code, out, err = run(small_program())
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert out == snapshot


def test_the_text_where_another_policy_helps(run, snapshot: SnapshotAssertion):
    code, out, _ = run(snapshot_of(STREAM, recorded_from=0))
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert out == snapshot


def test_the_headline_alone(run):
    code, out, _ = run(snapshot_of(STREAM, recorded_from=0), "-q")
    assert (code, out) == (0, "! peak 102.00 MiB allocated · 200.00 MiB reserved · 49.0 % fragmentation\n")


def test_the_json(run):
    code, out, err = run(snapshot_of(STREAM, recorded_from=0), "--json", "--alloc-conf", "expandable_segments:True")
    found = json.loads(out)
    assert (code, err, found["command"], found["schema_version"]) == (0, "", "snapshot", "1.0")
    replay = {
        "addresses": 3, "addresses_matched": 3, "segment_events": 2, "segment_events_matched": 2,
        "peak_reserved_bytes": 200 * MIB, "peak_allocated_bytes": 102 * MIB,
    }  # fmt: skip
    assert {key: found["replay"][key] for key in replay} == replay
    assert found["replay"]["exact"] is True
    assert [row["conf"] for row in found["what_if"]] == ["", "expandable_segments:True"]
    assert out == json.dumps(found, sort_keys=True, indent=2) + "\n"


def test_several_devices(run):
    """The top level is the device with most history; all are listed."""
    content, other = snapshot_of(STREAM, recorded_from=0), small_program()
    content["segments"] += [{**segment, "device": 1} for segment in other["segments"]]
    content["device_traces"] += other["device_traces"]
    _, out, _ = run(content, "--json")
    found = json.loads(out)
    assert (found["device"], [one["device"] for one in found["devices"]]) == (0, [0, 1])
    assert found["replay"] == found["devices"][0]["replay"]
    _, out, _ = run(content)
    assert "device 1 (--device N shows it)" in out
    _, out, _ = run(content, "--device", "1", "--json")
    assert (json.loads(out)["device"], "devices" in json.loads(out)) == (1, False)


def test_a_history_that_cannot_be_compared_is_told_and_no_failure(run):
    content = snapshot_of(STREAM, recorded_from=0)
    content["segments"].append({**content["segments"][0], "address": 1 << 45, "is_expandable": True, "blocks": []})
    code, out, _ = run(content)
    assert code == 0
    assert "not compared: this history mixes fixed and expandable segments" in " ".join(out.split())
    code, out, _ = run(content, "--json")
    found = json.loads(out)["replay"]
    assert (code, found["compared"], found["addresses"], found["addresses_matched"]) == (0, False, 3, 0)


def test_the_first_difference_is_told(run):
    content = snapshot_of(STREAM, recorded_from=0)
    for line in content["device_traces"][0][1:4]:
        line["addr"] += 512
    code, out, _ = run(content)
    assert code == 0
    assert "2 of 3 addresses" in out
    assert "the first difference is at event 1: 104857600 bytes at" in " ".join(out.split())


def test_expandable_segments_are_compared_with_the_conf_given(run):
    content = expandable_snapshot_of(STREAM)
    _, out, _ = run(content, "--json", "--recorded-conf", "expandable_segments:True")
    found = json.loads(out)
    assert (found["replay"]["exact"], found["conf"]["source"]) == (True, "--conf")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--device", "7"], "there is no device 7 in this snapshot"),
        (["--recorded-conf", "expandable_segment:True"], "did you mean expandable_segments?"),
        (["--alloc-conf", "max_split_size_mb:1"], "max_split_size_mb must be"),
        (["--top", "0"], "--top must be at least 1, not 0"),
        (["-f", "yaml"], "--format must be one of"),
        (["-f", "json", "--json"], "only one report can go to standard output"),
        (["-f", "json=no/such/folder/out.json"], "cannot write a file"),
    ],
)
def test_wrong_usage(run, words, complaint):
    code, out, err = run(small_program(), *words)
    assert (code, out) == (2, "")
    assert complaint in err


def test_all_complaints_at_once(run):
    _, _, err = run(small_program(), "--recorded-conf", "a:1", "--alloc-conf", "b:1", "--top", "-1", "-f", "yaml")
    assert err.count("\n  - ") == 4


@pytest.mark.parametrize("content", [b"", b"no pickle", [1, 2], {"segments": []}])
def test_what_is_no_snapshot_ends_in_exit_2(run, content):
    code, out, err = run(content)
    assert (code, out) == (2, "")
    assert err.startswith("error: this ")
    assert "hint: " in err
    assert "internal error" not in err


def test_a_missing_file(run, tmp_path):
    assert main(["snapshot", str(tmp_path / "none.pickle")]) == 2


def test_reports_and_exports_go_to_files(run, tmp_path):
    code, _, _ = run(small_program(), "-f", "json=out.json", "-f", "snapshot=copy.pickle")
    assert code == 0
    assert json.loads((tmp_path / "out.json").read_text())["history"]["events"] == 7
    assert (tmp_path / "copy.pickle").stat().st_size > 0
    again = main(["snapshot", "copy.pickle", "-q"])
    assert again == 0


def test_names_in_the_file_cannot_break_the_terminal(run):
    content = small_program()
    content["device_traces"][0][1]["frames"] = [
        {"filename": "/home/me/\x1b[31mevil\n.py", "line": 1, "name": "f\ud800\x07" + "x" * 500}
    ]
    content["device_traces"][0].append({**event("alloc", 1, 1), "frames": []})
    code, out, _ = run(content)
    assert code == 0
    assert "\x1b" not in out
    assert "\x07" not in out
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = run(content, "--json")
    assert (code, json.loads(out)["command"]) == (0, "snapshot")
