"""``memplan estimate --seq-len-dist``: the worst batch's peak, and how likely a run runs out of memory."""

import json

import pytest

from memplan.cli.app import main
from memplan.measure.document import ESTIMATE
from memplan.simulate import tail as tails
from memplan.simulate.tail_of_batch import MOST_TRIED

NET = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Embedding(50, 64), nn.Linear(64, 50))

def batch(batch_size, seq_len=16):
    return torch.randint(50, (batch_size, seq_len))

def loss(output, batch):
    return nn.functional.cross_entropy(output.flatten(0, 1), batch.flatten())
"""


@pytest.mark.slow
def test_the_answer_is_of_the_longest_and_says_how_likely_it_runs_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "lengths.txt").write_text("16\n64\n64\n20\n")
    words = ["estimate", "net.py", "--gpu", "t4", "--no-cache", "--steps", "9", "--seed", "3"]
    assert main([*words, "--seq-len-dist", "lengths.txt", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    tail = plain["tail"]
    assert plain["options"]["seq_len"] == "64"
    assert (tail["longest"], tail["steps"], tail["seed"], tail["lengths"]) == (64, 9, 3, "lengths.txt")
    assert (tail["chance"], tail["least_chance"], tail["low_chance"]) == (0, 0, 0)
    assert tail["runs"] == tails.MOST_RUNS
    assert tail["high_chance"] < 0.002
    assert tail["device_bytes"] >= plain["peak"]["allocated_bytes"]
    assert ESTIMATE.plain(ESTIMATE.read(plain)) == plain


@pytest.mark.slow
def test_the_largest_batch_is_of_the_longest_and_smaller_ones_are_tried_where_it_runs_out(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    words = ["batch", "net.py", "--gpu", "t4", "--no-cache", "--steps", "9", "--seq-len-dist", "uniform:16-64"]
    assert main([*words, "--json"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert main(["batch", "net.py", "--gpu", "t4", "--no-cache", "--seq-len", "64", "--json"]) == 0
    (of_longest,) = json.loads(capsys.readouterr().out)["results"]
    values = [each["value"] for each in drawn["tails"]]
    chances = [each["risk"]["chance"] for each in drawn["tails"]]
    assert drawn["results"][0]["value"] == of_longest["value"] == values[0]
    assert values == sorted(values, reverse=True)
    assert all(chances[:-1])
    assert not chances[-1] or len(chances) == MOST_TRIED


@pytest.mark.parametrize("command", ["estimate", "batch"])
@pytest.mark.parametrize(("words", "complaint"), [
    (["--steps", "9"], "give --seq-len-dist"),
    (["--seq-len-dist", "fixed:9"], "draws nothing"),
    (["--seq-len-dist", "uniform:1-9", "--seq-len", "9"], "give one"),
    (["--seq-len-dist", "uniform:1-9", "--steps", "0"], "--steps must be"),
    (["--seq-len-dist", "uniform:9-1"], "runs backwards"),
    (["--seq-len-dist", "uniform:1-9", "--gpu", "cpu"], "no limit"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(command, words, complaint, capsys):
    assert main([command, "model.py", "--gpu", "t4", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_lengths_that_are_drawn_are_not_enlarged(capsys):
    assert main(["batch", "model.py", "--gpu", "t4", "--of", "seq-len", "--seq-len-dist", "uniform:1-9"]) == 2
    assert "enlarges nothing" in capsys.readouterr().err
