"""The lifetime graph: an edge between every two tensors that share a moment, and between no others."""

from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.lifetime import graph
from memplan.lifetime.graph import TensorLifetime, count_meetings, meetings, to_networkx
from memplan.lifetime.records import Category
from memplan.units import Bytes, OpIndex, StorageId


def tensor(identity: int, start: int, end: int) -> TensorLifetime:
    return TensorLifetime(
        id=StorageId(identity), name=f"t{identity}", nbytes=Bytes(identity + 1), category=Category.ACTIVATION,
        module="block", source="net.py:3", stream=0, start=OpIndex(start), end=OpIndex(end), born="mm", last_read="add",
    )  # fmt: skip


LIVES = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=9)


@given(lives=LIVES)
def test_edges_are_the_pairs_that_share_a_moment(lives: list[tuple[int, int]]) -> None:
    tensors = [tensor(index, start, start + long) for index, (start, long) in enumerate(lives)]
    shared = {
        frozenset((one.id, other.id))
        for one, other in combinations(tensors, 2)
        if set(range(one.start, one.end)) & set(range(other.start, other.end))
    }
    found = list(meetings(tensors))
    assert {frozenset(edge) for edge in found} == shared
    assert len(found) == len(shared) == count_meetings(tensors)
    assert {frozenset(edge) for edge in to_networkx(tensors).edges} == shared


def test_the_largest_clique_is_what_is_alive_at_once() -> None:
    made = to_networkx([tensor(0, 0, 9), tensor(1, 1, 4), tensor(2, 3, 6), tensor(3, 6, 7)])
    assert set(max(nx.find_cliques(made), key=len)) == {0, 1, 2}
    assert made.nodes[2]["bytes"] == 3
    assert made.nodes[2]["category"] == "activation"


def test_too_many_edges_are_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MOST_EDGES", 2)
    with pytest.raises(UsageError, match="3 pairs of 3 tensors meet") as caught:
        to_networkx([tensor(index, 0, 2) for index in range(3)])
    assert "--largest" in str(caught.value.hint)
