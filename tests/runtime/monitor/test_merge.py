"""One reading out of what several processes and the driver say."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memplan.runtime.meters.records import DeviceReading, HostReading, Reading
from memplan.runtime.monitor.processes import merge
from memplan.runtime.monitor.wire import Message, decode, encode
from memplan.units import GIB
from tests.runtime.monitor.readings import HOST, card, from_outside, reading

CPU = replace(from_outside(), device="cpu", uuid="", used=GIB)


def said(
    pid: int, *devices: DeviceReading, rank: int | None = None, step: int | None = None, resident: int = 1
) -> Message:
    host = replace(HOST, resident=resident)
    return Message(kind="reading", pid=pid, rank=rank, step=step, reading=reading(*devices, host=host))


def test_nobody_speaks() -> None:
    found = merge({}, (), HOST, seconds=5.0)
    [device] = found.reading.devices
    assert (device.device, device.used, device.total) == ("cpu", HOST.total - HOST.available, HOST.total)
    assert (found.ranks, found.step, found.reading.seconds) == ((None,), None, 5.0)


def test_the_driver_stands_in_until_a_process_uses_its_gpu() -> None:
    cards = [from_outside(0), from_outside(1)]
    assert merge({1: said(1, CPU)}, cards, HOST, seconds=0).reading.devices == tuple(cards)
    assert merge({1: said(1, card(1))}, cards, HOST, seconds=0).reading.devices == (card(1),)


def test_ranks_speak_and_their_launcher_does_not() -> None:
    messages = [
        said(10, CPU, resident=9 * GIB),
        said(12, card(0, uuid="B"), rank=1, step=7),
        said(11, card(0, uuid="A"), rank=0, step=8),
        said(13, CPU, rank=0, resident=9 * GIB),  # A data worker of rank 0.
    ]
    found = merge({message.pid: message for message in messages}, (), HOST, seconds=0)
    assert [device.uuid for device in found.reading.devices] == ["A", "B"]
    assert found.ranks == (0, 1)
    assert found.step == 7


def test_one_process_has_no_rank() -> None:
    assert merge({1: said(1, card(), rank=0)}, (), HOST, seconds=0).ranks == (None,)


sizes = st.none() | st.integers(0, 1 << 50)
devices = st.builds(
    DeviceReading,
    device=st.sampled_from(["cpu", "cuda:3"]),
    name=st.text(),
    uuid=st.text(),
    allocated=sizes,
    requested=sizes,
    reserved=sizes,
    inactive=sizes,
    peak_allocated=sizes,
    peak_reserved=sizes,
    used=st.integers(0),
    total=st.integers(0),
    times=st.lists(st.integers(0)).map(tuple),
)
hosts = st.builds(HostReading, **{name: st.integers(0) for name in ("resident", "available", "total", "swap_used")})
readings = st.builds(Reading, seconds=st.floats(0, 1e10), devices=st.lists(devices).map(tuple), host=hosts)


@given(
    message=st.builds(
        Message,
        kind=st.sampled_from(["reading", "oom"]),
        pid=st.integers(1),
        rank=st.none() | st.integers(0),
        step=st.none() | st.integers(0),
        reading=st.none() | readings,
        why=st.text(),
        facts=st.dictionaries(st.text(), st.integers()),
    )
)
def test_messages_arrive_as_they_were_sent(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary() | st.sampled_from([b"{}", b"[]", b'{"kind": "reading", "pid": 1, "reading": {}}', b"null", b"1"]))
def test_nonsense_is_no_message(datagram: bytes) -> None:
    assert decode(datagram) is None


def test_later_versions_may_say_more() -> None:
    assert decode(b'{"kind": "blind", "pid": 3, "why": "x", "mood": 1}') == Message(kind="blind", pid=3, why="x")
