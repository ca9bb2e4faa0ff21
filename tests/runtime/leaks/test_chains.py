"""Chains are Python expressions that lead to what is kept; cycles are named; the search ends."""

import functools
import gc
import queue
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memplan.runtime.leaks.chains import path_to, roots
from memplan.runtime.leaks.heap import local_variables
from memplan.runtime.leaks.records import Chain

PATIENT = 300.0
"""Seconds: a search among all that a whole run has left may take longer than a user would wait."""
IN_MODULE: list[Any] = []


class Slotted:
    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner


class Registry:
    kept: ClassVar[list[Any]] = []


WRAPPINGS: dict[str, Callable[[Any], Any]] = {
    "list": lambda inner: [None, inner],
    "tuple": lambda inner: (inner, 1),
    "dict": lambda inner: {"a": 0, "key": inner},
    "numbered": lambda inner: {7: inner},
    "ordered": lambda inner: OrderedDict(x=inner),
    "deque": lambda inner: deque([1, 2, inner]),
    "attribute": lambda inner: SimpleNamespace(inner=inner),
    "slot": Slotted,
    "closure": lambda inner: lambda: inner,
    "default": lambda inner: lambda value=inner: value,
    "method": lambda inner: Slotted(inner).__init__,
}


@pytest.mark.slow
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(sorted(WRAPPINGS)), max_size=6))
def test_a_chain_is_an_expression_for_what_is_kept(wrappings: list[str]) -> None:
    made = [torch.zeros(3)]
    for name in wrappings:
        made.append(WRAPPINGS[name](made[-1]))
    IN_MODULE.append(made.pop())
    address = id(made[0]) if made else id(IN_MODULE[-1])
    target = made[0] if made else IN_MODULE[-1]
    made.clear()
    try:
        found = path_to(target, roots()._replace(local={}), PATIENT).chain
        module, _, expression = str(found).partition(".IN_MODULE")
        assert module == __name__
        assert found.rooted
        assert id(eval(f"IN_MODULE{expression}")) == address
    finally:
        IN_MODULE.clear()


def test_variables_of_running_functions_are_roots() -> None:
    def caller() -> str:
        kept = {"here": [torch.zeros(5, 7, 3)]}
        found = callee()
        assert kept
        return found

    def callee() -> str:
        known = roots()
        [target] = [each for each in gc.get_objects() if type(each) is torch.Tensor and tuple(each.shape) == (5, 7, 3)]
        return str(path_to(target, known, PATIENT).chain)

    assert caller() == "caller.kept['here'][0]"


def test_variables_of_another_thread_are_roots() -> None:
    begun, end = threading.Event(), threading.Event()
    addresses: list[int] = []

    def worker() -> None:
        mine = [torch.zeros(6)]
        addresses.append(id(mine[0]))
        begun.set()
        end.wait(30)

    thread = threading.Thread(target=worker)
    thread.start()
    begun.wait(30)
    known = roots()
    try:
        found = [path_to(each, known, PATIENT).chain for each in gc.get_objects() if id(each) == addresses[0]]
    finally:
        end.set()
        thread.join()
    assert [str(each) for each in found] == ["worker.mine[0]"]


def without_locals(target: Any) -> Chain:
    return path_to(target, roots()._replace(local={}), PATIENT).chain


def test_class_attributes_are_reached() -> None:
    Registry.kept.append(torch.zeros(2))
    try:
        assert str(without_locals(Registry.kept[0])) == f"{__name__}.Registry.kept[0]"
    finally:
        Registry.kept.clear()


def test_a_traceback_leads_through_its_frames() -> None:
    def fails() -> None:
        inner = torch.zeros(4)
        raise ValueError(len(inner))

    try:
        fails()
    except ValueError as error:
        IN_MODULE.append(error)
    try:
        tensor = IN_MODULE[0].__traceback__.tb_next.tb_frame.f_locals["inner"]
        text = str(without_locals(tensor))
        assert text == f"{__name__}.IN_MODULE[0].__traceback__.tb_next.tb_frame.<fails>.inner"
    finally:
        IN_MODULE.clear()


@pytest.mark.parametrize(
    ("container", "bound"),
    [
        (lambda inner: deque([inner], maxlen=9), 9),
        (lambda inner: deque([inner]), None),
        (lambda inner: filled(queue.Queue(4), inner), 4),
        (lambda inner: filled(queue.Queue(), inner), None),
        (lambda inner: cached(8, inner), 8),
        (lambda inner: cached(None, inner), None),
        (lambda inner: [deque([inner], maxlen=9)], 9),
        (lambda inner: deque([deque([inner], maxlen=9)], maxlen=3), 3),
    ],
)
def test_containers_say_how_much_they_take(container: Callable[[Any], Any], bound: int | None) -> None:
    target = torch.zeros(2)
    IN_MODULE.append(container(target))
    try:
        found = without_locals(target)
        assert found.rooted
        assert found.bound == bound
    finally:
        IN_MODULE.clear()


def filled(waiting: queue.Queue[Any], inner: Any) -> queue.Queue[Any]:
    waiting.put(inner)
    return waiting


def cached(size: int | None, inner: Any) -> Any:
    @functools.lru_cache(maxsize=size)
    def remembered(number: int) -> Any:
        return inner.clone() if number else inner

    remembered(0)
    return remembered


class Node:
    def __init__(self) -> None:
        self.other: Node | None = None


def test_a_cycle_is_named_with_the_way_from_it() -> None:
    first, second, tensor = Node(), Node(), torch.zeros(3)
    first.other, second.other = second, first
    second.held = [tensor]  # type: ignore[attr-defined]
    gc.disable()
    try:
        del first, second
        found = without_locals(tensor)
    finally:
        gc.enable()
    assert not found.rooted
    assert str(found) == "<Node>.held[0]"
    assert found.cycle == ("Node", "Node", "Node")


def test_what_nothing_holds_has_no_chain() -> None:
    found = without_locals(torch.zeros(3))
    assert (found.links, found.rooted, found.cycle) == ((), False, ())


def test_the_search_ends_in_time() -> None:
    target: Any = torch.zeros(1)
    tensor = target
    for _ in range(100_000):
        target = [target]
    IN_MODULE.append(target)
    began = time.monotonic()
    try:
        found = path_to(tensor, roots()._replace(local={}), 0.2)
        assert not found.chain.rooted
        assert time.monotonic() - began < 10
    finally:
        IN_MODULE.clear()
        while isinstance(target, list):
            target = target.pop()


def test_objects_that_answer_badly_are_passed_by() -> None:
    class Bad:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("not to be compared")

        __hash__ = None  # type: ignore[assignment]

    target = torch.zeros(2)
    IN_MODULE.append(Bad(target))
    try:
        assert str(without_locals(target)) == f"{__name__}.IN_MODULE[0].inner"
    finally:
        IN_MODULE.clear()


def test_looking_at_variables_keeps_none_of_them() -> None:
    def holds_one() -> int:
        tensor = torch.zeros(3)
        local_variables()
        count = sys.getrefcount(tensor)
        tensor = None
        return count

    assert holds_one() == 2  # The variable, and the argument of getrefcount.
