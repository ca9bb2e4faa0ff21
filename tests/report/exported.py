"""Histories for tests of the exports: random ones, a recorded step, and real snapshots where they are at hand."""

import os
from functools import cache
from pathlib import Path

import pytest
from hypothesis import strategies as st

from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.replay.stream import request_stream
from memplan.snapshot.records import Snapshot
from tests.replay.replay_streams import requests
from tests.snapshot.recorded_traces import lifetimes_of, record, small_step

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[3] / "shared" / "data")) / "snapshots"
REAL = sorted(DATA.glob("*.pickle"))
real_snapshots = pytest.mark.parametrize("path", REAL or [None], ids=lambda path: path.stem[:24] if path else "none")


def needs_data(path: Path | None) -> Path:
    if path is None:
        pytest.skip("no real snapshots here: set MEMPLAN_DATA")
    return path


def snapshot_of(stream: list[Request], policy: AllocatorPolicy) -> Snapshot:
    lifetimes = lifetimes_of(stream)
    return record(lifetimes, request_stream(lifetimes.trace), policy=policy)


@cache
def recorded_step() -> Snapshot:
    lifetimes = small_step()
    return record(lifetimes, request_stream(lifetimes.trace), policy=AllocatorPolicy())


policies = st.sampled_from([AllocatorPolicy(), AllocatorPolicy(expandable_segments=True)])
snapshots = st.builds(snapshot_of, requests(max_events=40).filter(bool), policies)
