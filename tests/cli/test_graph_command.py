"""``memplan graph`` as a user types it: each format is read by what it is made for."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import networkx as nx
import pytest
import torch

from memplan.cli.app import main
from tests.contract.goldens import derived

TARGET = """
import torch
from torch import nn


def model():
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))


def batch(batch_size):
    return torch.randn(batch_size, 64)


def loss(output, batch):
    return output.square().mean()
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    file = tmp_path / "net.py"
    file.write_text(TARGET)
    return str(file)


def test_each_format_is_read_by_what_it_is_for(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: tmp_path / f"step.{name}" for name in ("code", "json", "dot", "graphml", "html", "fx")}
    assert (
        main(
            [
                "graph",
                target,
                "-f",
                "text",
                *(word for name, file in files.items() for word in ("-f", f"{name}={file}")),
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    found = json.loads(files["json"].read_text())
    derived("graph").validate(found)
    module = torch.load(files["fx"], weights_only=False)
    names = {node.name for node in module.graph.nodes}
    assert found["peak"]["op"] in names
    assert {node["born"] for node in found["nodes"]} - {""} <= names
    assert {node["last_read"] for node in found["nodes"]} - {""} <= names
    assert f"torch.fx: {found['ops']['forward']} forward" in out
    drawn = nx.node_link_graph(found, edges="edges")
    assert len(drawn.edges) == len(found["edges"]) > 0
    assert nx.utils.graphs_equal(
        nx.Graph(nx.read_graphml(files["graphml"], node_type=int).edges), nx.Graph(drawn.edges)
    )
    assert files["dot"].read_text().count(" -- ") == len(found["edges"])
    compile(files["code"].read_text(), "step", "exec")
    assert "# forward · 0" in files["code"].read_text()
    picture = files["html"].read_text()
    assert ET.fromstring(picture[picture.index("<svg") : picture.index("</svg>") + 6]).tag.endswith("svg")


def test_the_largest_tensors_alone(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", target, "--largest", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["nodes"]) == 3
    assert found["left_out"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--largest", "0"], "--largest must be at least 1"),
        (["-f", "fx"], "name a file"),
        (["-f", "png"], "--format must"),
    ],
)
def test_wrong_words_exit_2(words: list[str], said: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", target, *words]) == 2
    assert said in capsys.readouterr().err
