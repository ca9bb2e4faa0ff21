import contextlib
import json
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.plan.checkpoint.graph_file import read_instance
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from tests.plan.checkpoint.schedule.published import files, needs_data

CHECKMATE = {
    "directed": True,
    "multigraph": False,
    "graph": {"name": "three"},
    "nodes": [
        {"name": "last", "backward": True, "cost_cpu": 3, "cost_ram": 30, "id": 7},
        {"name": "first", "backward": False, "cost_cpu": 1, "cost_ram": 10, "id": 5},
        {"name": "middle", "backward": False, "cost_cpu": 2, "cost_ram": 20, "id": 6},
    ],
    "links": [{"source": 5, "target": 6}, {"source": 6, "target": 7}, {"source": 5, "target": 7}],
}
LAYERED = {
    "graph": {"order": [2, 0, 1]},
    "nodes": [
        {"name": 0, "out_cost": 10, "duration": 1},
        {"name": 1, "out_cost": 20, "duration": 2},
        {"name": 2, "out_cost": 30, "duration": 0},
    ],
    "links": [{"0": 2, "1": 1}, {"0": 0, "1": 1}],
}


def written(folder: Path, document: object) -> Path:
    path = folder / "graph.json"
    path.write_text(json.dumps(document))
    return path


def test_checkmate_graphs_are_sorted(tmp_path: Path):
    graph = read_instance(written(tmp_path, CHECKMATE))

    assert graph.names == ("first", "middle", "last")
    assert graph.sizes == (10, 20, 30)
    assert graph.costs == (1.0, 2.0, 3.0)
    assert graph.predecessors == ((), (0,), (0, 1))


def test_layered_graphs_keep_their_order(tmp_path: Path):
    graph = read_instance(written(tmp_path, LAYERED))

    assert graph.names == ("2", "0", "1")
    assert graph.sizes == (30, 10, 20)
    assert graph.predecessors == ((), (), (0, 1))


def test_what_newer_networkx_calls_edges_is_read_too(tmp_path: Path):
    renamed = {("edges" if key == "links" else key): value for key, value in CHECKMATE.items()}

    assert read_instance(written(tmp_path, renamed)) == read_instance(written(tmp_path, CHECKMATE))


def test_what_networkx_writes_is_read(tmp_path: Path):
    graph = nx.DiGraph([(0, 1), (1, 2)])
    for node in graph:
        graph.nodes[node].update(cost_cpu=1.5, cost_ram=64)

    read = read_instance(written(tmp_path, nx.node_link_data(graph, edges="links")))

    assert (read.sizes, read.costs, read.predecessors) == ((64,) * 3, (1.5,) * 3, ((), (0,), (1,)))


def changed(document: dict[str, object], **fields: object) -> dict[str, object]:
    return {key: value for key, value in (document | fields).items() if value is not None}


NODES = [{"id": 0, "cost_cpu": 1, "cost_ram": 1}, {"id": 1, "cost_cpu": 1, "cost_ram": 1}]


@pytest.mark.parametrize(
    ("document", "what", "where"),
    [
        ([], "not an object", "the file"),
        ({"nodes": []}, "'edges' is not a list", "edges"),
        ({"nodes": [], "links": []}, "no nodes", "nodes"),
        ({"nodes": [3], "links": []}, "not an object", "nodes[0]"),
        ({"nodes": [{"id": 0}], "links": []}, "neither cost_cpu", "nodes[0]"),
        ({"nodes": [{"id": 0, "cost_cpu": 1}], "links": []}, "'cost_ram'", "nodes[0]"),
        ({"nodes": [{"id": 0, "cost_cpu": -1, "cost_ram": 1}], "links": []}, "'cost_cpu'", "nodes[0]"),
        ({"nodes": [{"id": 0, "cost_cpu": 1, "cost_ram": 1.5}], "links": []}, "whole number of bytes", "nodes[0]"),
        ({"nodes": [{"id": 0, "cost_cpu": 1, "cost_ram": 1e30}], "links": []}, "64 bits", "nodes[0]"),
        ({"nodes": [{"id": 0, "cost_cpu": True, "cost_ram": 1}], "links": []}, "'cost_cpu'", "nodes[0]"),
        ({"nodes": [{"id": [0], "cost_cpu": 1, "cost_ram": 1}], "links": []}, "'id'", "nodes[0]"),
        ({"nodes": [*NODES, NODES[0]], "links": []}, "two nodes", "nodes[2]"),
        ({"nodes": NODES, "links": [{"source": 0, "target": 9}]}, "names the node 9", "links[0]"),
        ({"nodes": NODES, "links": [{"source": 0}]}, "'target'", "links[0]"),
        ({"nodes": NODES, "links": [{"source": 0, "target": 1}, {"source": 1, "target": 0}]}, "a cycle", "links"),
        (changed(LAYERED, graph=None), "not an object", "graph"),
        (changed(LAYERED, graph={}), "'order' is not a list", "graph.order"),
        (changed(LAYERED, graph={"order": [0, 0, 1]}), "does not name each node once", "graph.order"),
        (changed(LAYERED, graph={"order": [1, 0, 2]}), "before one that it reads", "links[0]"),
    ],
)
def test_each_fault_is_explained(tmp_path: Path, document: object, what: str, where: str):
    path = written(tmp_path, document)

    with pytest.raises(UsageError) as caught:
        read_instance(path)

    assert what in caught.value.what
    assert caught.value.where == f"{path}: {where}"
    assert caught.value.hint


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_json_is_explained(tmp_path: Path, content: bytes):
    path = tmp_path / "graph.json"
    path.write_bytes(content)

    with pytest.raises(UsageError, match=r"no JSON|inside one another"):
        read_instance(path)


def test_a_missing_file_is_explained(tmp_path: Path):
    with pytest.raises(UsageError, match="cannot read the graph"):
        read_instance(tmp_path / "nothing.json")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@given(st.data())
def test_a_damaged_file_is_read_or_explained(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    document = json.loads(json.dumps(data.draw(st.sampled_from([CHECKMATE, LAYERED]))))
    place: object = document
    while isinstance(place, dict | list) and place:
        parent, key = place, data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        place = parent[key]
        if data.draw(st.booleans()):
            break
    parent[key] = data.draw(ANYTHING)

    path = written(tmp_path_factory.getbasetemp(), document)
    with contextlib.suppress(UsageError):
        graph = read_instance(path)
        assert all(source < node for node, sources in enumerate(graph.predecessors) for source in sources)


@needs_data
@pytest.mark.parametrize("path", files, ids=lambda path: path.stem[:20])
def test_every_public_instance_is_read(path: Path):
    graph = read_instance(path)
    links = json.loads(path.read_text())["links"]

    assert sum(map(len, graph.predecessors)) == len(links)
    assert figures_of(graph, unplanned(graph)).peak_bytes > max(graph.sizes)
