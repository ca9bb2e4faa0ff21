"""The page's server over HTTP: whom it answers, what it tells, and what it never lets happen to training."""

import json
import multiprocessing
import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from memplan.errors import UsageError
from memplan.runtime import web
from memplan.runtime.monitor.records import Check, Level
from memplan.runtime.web.listener import HttpListener, Response
from memplan.runtime.web.recorder import MOST_COLUMNS, MOST_POINTS, MOST_TURNS, SeriesRecorder
from memplan.runtime.web.server import SCRIPTS, Dashboard, page, start
from tests.runtime.metrics.checks import GIB, PLAN, REASON, SIZES, check, device, health
from tests.runtime.web.asking import asked

ASSETS = Path(web.__file__).parent / "assets"


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    found = start(lambda: check(3), port=0, job="gpt2", plan=PLAN)
    yield found
    found.close()


def test_the_page_is_whole_and_its_policy_names_its_own_texts(dashboard: Dashboard) -> None:
    status, headers, body = asked(dashboard.address)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    allowed = headers["Content-Security-Policy"]
    assert allowed.startswith("default-src 'none'")
    assert "connect-src 'self'" in allowed
    assert "frame-ancestors 'none'" in allowed
    assert "unsafe" not in allowed
    assert "@" not in re.sub(r"@media[^{]+{|[\w.]+@", "", body.decode().split("</style>")[0])
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9109", "169.254.169.254", "127.0.0.1.evil.example", "", "["]
)
def test_a_name_that_leads_here_from_outside_is_refused(dashboard: Dashboard, host: str) -> None:
    for path in ("/", "/data.json"):
        status, _, body = asked(dashboard.address, path, Host=host)
        assert status == 403
        assert b"gpt2" not in body


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:1", "127.1.2.3", "[::1]:9109", "LOCALHOST"])
def test_names_of_this_machine_are_answered_also_through_a_tunnel(dashboard: Dashboard, host: str) -> None:
    assert asked(dashboard.address, "/data.json", Host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
def test_only_get_is_answered(dashboard: Dashboard, method: str) -> None:
    assert asked(dashboard.address, "/data.json", method=method)[0] == 501


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/assets/main.js", "/data.json/", "/%2e%2e/"])
def test_there_are_no_files(dashboard: Dashboard, path: str) -> None:
    assert asked(dashboard.address, path)[0] == 404


def test_data_is_what_was_checked(dashboard: Dashboard) -> None:
    dashboard._recorder.look()
    status, headers, body = asked(dashboard.address, "/data.json")
    told = json.loads(body)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert (told["schema_version"], told["job"]) == ("1.0", "gpt2")
    assert told["plan"]["high_bytes"] == PLAN.high
    (card,) = told["devices"]
    columns = told["points"]["devices"][card["key"]]
    assert {name: values[-1] for name, values in columns.items()} == {
        "used_bytes": 50 * GIB,
        "reserved_bytes": 48 * GIB,
        "allocated_bytes": 40 * GIB,
        "peak_allocated_bytes": 45 * GIB,
        "demand_bytes": 60 * GIB,
        "fragmentation": 0.125,
    }
    assert told["heat"]["devices"][card["key"]][-1] == list(SIZES[:30])
    assert told["last"]["recommendations"][0]["remedy"] == "take a smaller batch"
    assert told["turns"][0]["reasons"] == [{"device": "cuda:0", "code": "MM001", "sentence": REASON.message}]


def test_before_the_first_check_the_page_waits() -> None:
    told = SeriesRecorder(lambda: None, job="", plan=None).document()
    assert told["last"] is None
    assert told["plan"] is None
    assert told["points"]["seconds"] == []


def followed(checks: list[Check]) -> Iterator[tuple[SeriesRecorder, Check]]:
    """A recorder, after each of these checks."""
    last: list[Check] = []
    recorder = SeriesRecorder(lambda: last[-1] if last else None, job="", plan=None)
    for each in checks:
        last.append(each)
        recorder.look()
        yield recorder, each


def test_two_that_look_at_once_keep_the_order_of_checks() -> None:
    early, late = check(1), check(2)
    answers, asked_early, let_go = iter((early, late)), Event(), Event()

    def source() -> Check:
        answer = next(answers)
        if answer is early:
            asked_early.set()
            let_go.wait(60)
        return answer

    recorder = SeriesRecorder(source, job="", plan=None)
    slow, quick = Thread(target=recorder.look), Thread(target=recorder.look)
    slow.start()
    assert asked_early.wait(60)
    quick.start()
    quick.join(0.2)
    let_go.set()
    slow.join()
    quick.join()
    assert recorder.document()["points"]["seconds"] == [early.reading.seconds, late.reading.seconds]


def joined(before: Any, after: Any, first: int) -> Any:
    """What a reader has after an answer that begins at an index."""
    if isinstance(after, dict):
        return {name: joined((before or {}).get(name), value, first) for name, value in after.items()}
    return [*(before or [])[:first], *after] if isinstance(after, list) else after


def test_what_is_new_together_with_what_was_told_is_all() -> None:
    first, second = device(0), device(1)
    checks = [check(number, *((first,) if number < 300 else (first, second))) for number in range(2 * MOST_POINTS + 7)]
    points, heat, at = None, None, ""
    for recorder, each in followed(checks):
        if each.number % 97:
            continue
        told = recorder.document(at)
        points, heat = (
            joined(mine, told[name], told[name]["from"]) for mine, name in ((points, "points"), (heat, "heat"))
        )
        at, whole = told["at"], recorder.document()
        assert {**points, "from": 0} == whole["points"]
        assert {**heat, "from": 0} == whole["heat"]
    assert len(points["seconds"]) <= MOST_POINTS
    assert len(heat["seconds"]) <= MOST_COLUMNS


@pytest.mark.parametrize(
    "at", ["", "x", "1.2.3", "1.2.3.4.5", "-1.0.0.0", "9999999999999.0.0.0", "٣.٣.٣.٣", "0.999.0.999"]
)
def test_whatever_is_asked_for_is_answered(at: str) -> None:
    (*_, (recorder, _)) = followed([check(number) for number in range(5)])
    told = recorder.document(at)
    assert told["points"]["from"] + len(told["points"]["seconds"]) == 5


def test_turns_are_told_once_and_not_for_ever() -> None:
    calm = health(device(), level=Level.NORMAL, reasons=())
    checks = [
        check(n, devices=(calm,) if n // 3 % 2 else (health(device()),), level=Level(1 - n // 3 % 2)) for n in range(12)
    ]
    (*_, (recorder, _)) = followed(checks)
    assert [turn["level"] for turn in recorder.document()["turns"]] == ["warning", "normal", "warning", "normal"]
    many = [check(n, devices=(calm,) if n % 2 else (health(device()),), level=Level(1 - n % 2)) for n in range(1000)]
    (*_, (recorder, _)) = followed(many)
    assert len(recorder.document()["turns"]) == MOST_TURNS


def test_a_source_that_fails_leaves_the_page_with_what_it_had(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def source() -> Check:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("the monitor is gone")
        return check(3)

    dashboard = start(source, port=0)
    try:
        while len(calls) < 4:
            pass
        assert json.loads(asked(dashboard.address, "/data.json")[2])["last"]["number"] == 3
    finally:
        dashboard.close()
    assert len(caplog.records) == 1  # Not ten times a second.


def test_an_answer_that_fails_is_an_error_500_and_nothing_more(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    listener = HttpListener({"/": lambda _: 1 / 0}, host="127.0.0.1", port=0)
    try:
        assert asked(listener.address)[0] == 500
    finally:
        listener.close()
    assert capsys.readouterr() == ("", "")
    assert "ZeroDivisionError" in caplog.text


def test_a_client_that_hangs_up_is_nobodys_business(capsys: pytest.CaptureFixture[str]) -> None:
    listener = HttpListener(
        {"/": lambda _: Response(body=b"x" * (1 << 24), kind="text/plain")}, host="127.0.0.1", port=0
    )
    host, port = listener.address.split(":")
    for sent in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n", b""):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(sent)
    assert asked(listener.address)[0] == 200
    listener.close()
    assert capsys.readouterr() == ("", "")


def test_beyond_loopback_every_name_is_answered_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    listener = HttpListener({"/": lambda _: Response(body=b"here", kind="text/plain")}, host="0.0.0.0", port=0)
    port = listener.address.rsplit(":", 1)[1]
    assert asked(f"127.0.0.1:{port}", Host="gpu-node-7")[0] == 200
    listener.close()
    assert "nothing asks for a password" in caplog.text


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_version_6_of_the_protocol(host: str) -> None:
    try:
        listener = HttpListener({"/": lambda _: Response(body=b"here", kind="text/plain")}, host=host, port=0)
    except UsageError:
        pytest.skip("no IPv6 here")
    assert re.fullmatch(r"\[::1\]:\d+", listener.address)
    with urllib.request.urlopen(f"http://{listener.address}/", timeout=5) as answer:
        assert answer.read() == b"here"
    listener.close()


def _nap(began: Any, over: Any) -> None:
    began.set()
    over.wait(20)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_that_are_forked_do_not_keep_the_port() -> None:
    listener = HttpListener({}, host="127.0.0.1", port=0)
    port = int(listener.address.split(":")[1])
    context = multiprocessing.get_context("fork")
    began, over = context.Event(), context.Event()
    worker = context.Process(target=_nap, args=(began, over))
    worker.start()
    assert began.wait(20)
    try:
        listener.close()
        HttpListener({}, host="127.0.0.1", port=port).close()
    finally:
        over.set()
        worker.join()


def test_every_script_is_part_of_the_page_and_makes_no_markup() -> None:
    assert {path.stem for path in ASSETS.glob("*.js")} == set(SCRIPTS)
    assert "@STYLE@" not in page()[0]
    assert "@SCRIPT@" not in page()[0]
    for path in ASSETS.glob("*.js"):
        text = path.read_text()
        assert len(text.splitlines()) < 300
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://", text), (
            path
        )
