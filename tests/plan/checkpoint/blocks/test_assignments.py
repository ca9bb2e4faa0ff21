"""Few traces show all options."""

from hypothesis import given
from hypothesis import strategies as st

from memplan.plan.checkpoint.blocks.probe.run import assignments


@given(st.data())
def test_every_option_of_every_kind_is_shown_in_as_few_traces_as_can_be(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=12))
    kinds = [sorted(set(kinds)).index(kind) for kind in kinds]
    counts = data.draw(st.lists(st.integers(2, 9), min_size=max(kinds) + 1, max_size=max(kinds) + 1))
    traces = assignments(kinds, counts)
    for kind, count in enumerate(counts):
        shown = {options[block] for options in traces for block, other in enumerate(kinds) if other == kind}
        assert shown == set(range(1, count))
    fewest = max(-(-(count - 1) // kinds.count(kind)) for kind, count in enumerate(counts))
    assert len(traces) == fewest
