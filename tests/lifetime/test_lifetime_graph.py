"""The lifetime graph: an edge between every two tensors that share a moment, and between no others."""

from itertools import combinations

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from memplan.errors import UsageError
from memplan.lifetime import graph
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.graph import TensorLifetime, count_meetings, lifetimes_of, meetings, to_networkx
from memplan.lifetime.records import Category
from memplan.units import Bytes, OpIndex, StorageId
from tests.tracing.jobs import source, trace


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


class Scaled(nn.Module):
    """Throws something away while it is made, before its first op and after."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.randn(8).mul(3).exp())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.first(x) * self.scale).relu()


def test_edges_of_a_trace_are_those_of_its_allocations_and_frees_with_set_up_before_the_first_op() -> None:
    given = source(Scaled, lambda size: torch.randn(size, 8), loss=lambda output, _: output.sum())
    recorded = trace(given, batch_size=4)
    born, gone = (
        {event.storage: event.op for event in recorded.events if event.action == action} for action in ("alloc", "free")
    )
    sized = [each.id for each in recorded.storages if each.nbytes and each.place == "device"]
    alive = {each: set(range(born[each], gone.get(each, len(recorded.ops)) + 1)) for each in sized}
    tensors = lifetimes_of(build_lifetimes(recorded))
    assert {frozenset(edge) for edge in meetings(tensors)} == {
        frozenset(pair) for pair in combinations(sized, 2) if alive[pair[0]] & alive[pair[1]]
    }
    thrown_away = [each for each in tensors if each.id in gone and gone[each.id] < 0]
    assert thrown_away
    assert {(each.born, each.name) for each in thrown_away} == {("", "")}


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
