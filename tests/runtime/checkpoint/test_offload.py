"""Offloaded blocks: each storage is moved once, what need not move stays, and what comes back is the same."""

import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from memplan.runtime.checkpoint.host import MOST_LEAVING, PinnedHost, Returning
from memplan.runtime.checkpoint.offload import LEAST_BYTES, BackwardOrder, offloading

SIDE = 32


class Counting(PinnedHost):
    """A host that says what it took and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[int] = []
        self.given: list[int] = []

    def take(self, flat: torch.Tensor) -> Any:
        self.taken.append(flat.nbytes)
        return super().take(flat)

    def give(self, taken: Any) -> Returning:
        self.given.append(taken[0].nbytes)
        return super().give(taken)


def run(function: Any, *inputs: torch.Tensor, module: nn.Module | None = None) -> Counting:
    """Gradients are the same with and without; returns what was moved."""
    host = Counting()
    plain = torch.autograd.grad(function(*inputs).pow(2).sum(), inputs)
    with offloading(module or nn.Module(), host):
        loss = function(*inputs).pow(2).sum()
    moved = torch.autograd.grad(loss, inputs)
    assert all(map(torch.equal, plain, moved))
    assert sorted(host.taken) == sorted(host.given)
    return host


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), requires_grad=True)


FULL = SIDE * SIDE * 4


def test_a_tensor_saved_twice_is_moved_once() -> None:
    # The square saves its input, which the product of y with itself saves twice.
    assert run(lambda x: (y := x + 1) * y, leaf(SIDE, SIDE)).taken == [FULL, FULL]


def test_views_share_one_move() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        query, key = (x + 1).chunk(2)
        return query.exp() * key.sin() + key.t().t().cos() * query.expand(3, -1, -1).reshape(3, -1, SIDE)[0].sin()

    taken = run(function, leaf(2 * SIDE, SIDE)).taken
    assert taken.count(2 * FULL) == 1


def test_views_of_other_types() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.view_as_complex((x + 1).reshape(SIDE, -1, 2))
        return torch.view_as_real(y * y.conj() * y) + torch.view_as_real(y).sin()

    run(function, leaf(SIDE, SIDE))


def test_what_is_written_to_after_it_was_saved_is_refused_as_without() -> None:
    x = leaf(SIDE, SIDE)
    for context in (nullcontext(), offloading(nn.Module(), PinnedHost())):
        with context:
            y = x.exp()
            sine = y.sin()
            y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            sine.sum().backward()
        # What does not need it is served.
        with context if isinstance(context, nullcontext) else offloading(nn.Module(), PinnedHost()):
            z = x.exp()
            unused = z.sin()
            other = x.cos()
            z.add_(1)
        other.sum().backward()
        del unused


def test_an_op_may_write_to_what_it_saves() -> None:
    # The noise of rrelu is saved before it is drawn.
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return nn.functional.rrelu(x.sin(), training=True).exp()

    run(function, leaf(SIDE, SIDE))


def test_a_backward_inside_the_block() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        (inner,) = torch.autograd.grad(x.exp().sum(), x, create_graph=True)
        return (inner * x).sum()

    x = leaf(SIDE, SIDE)
    with offloading(nn.Module(), PinnedHost()):
        loss = function(x)
    assert torch.equal(torch.autograd.grad(loss, x)[0], torch.autograd.grad(function(x), x)[0])


def test_parameters_views_of_them_and_small_tensors_stay() -> None:
    module = nn.Linear(SIDE, SIDE)
    frozen = nn.Parameter(torch.randn(SIDE, SIDE))
    x = leaf(SIDE, SIDE)

    def function(x: torch.Tensor) -> torch.Tensor:
        return module(x.exp()) @ frozen.t() * (x.mean() * 2)

    host = run(function, x, module=module)
    # The exponential (twice, in one storage), the first product's result, and the second's.
    assert host.taken == [FULL] * len(host.taken)
    assert len(host.taken) == 3 + 1  # … and the loss's square
    small = leaf(LEAST_BYTES // 4 - 1)
    assert run(lambda x: x.exp(), small).taken == []
    assert run(lambda x: x.exp().exp(), leaf(LEAST_BYTES // 4)).taken != []


def test_nothing_comes_back_before_it_is_needed_and_all_of_it_then() -> None:
    host = Counting()
    x = leaf(SIDE, SIDE)
    with offloading(nn.Module(), host):
        loss = (x.exp().sin().cos() + 1).sum()
    # The exponential, which is the sine's argument, and the sine.
    assert len(host.taken) == 2
    assert host.given == []
    seen: list[int] = []
    x.register_hook(lambda _: seen.append(len(host.given)))
    loss.backward()
    assert seen == [2]


def test_a_retained_graph_is_brought_back_twice() -> None:
    host = Counting()
    x = leaf(SIDE, SIDE)
    with offloading(nn.Module(), host):
        loss = x.exp().sin().sum()
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    (second,) = torch.autograd.grad(loss, x)
    assert torch.equal(first, second)
    assert len(host.given) == 2 * len(host.taken)


class Twice(torch.autograd.Function):
    """Asks for its saved tensor twice."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * (context.saved_tensors[0] + context.saved_tensors[0])


def test_what_is_asked_for_twice_comes_twice_and_alone() -> None:
    host = Counting()
    x = leaf(SIDE, SIDE)
    with offloading(nn.Module(), host):
        loss = Twice.apply(x.exp().sin()).sum()
    loss.backward()
    twice = leaf(SIDE, SIDE)
    twice.exp().sin().square().sum().backward()
    assert torch.equal(x.grad, twice.grad)
    assert len(host.given) == len(host.taken) + 1


def test_subclasses_that_wrap_tensors_stay() -> None:
    nested = torch.nested.nested_tensor([torch.randn(SIDE, SIDE), torch.randn(8, SIDE)], layout=torch.jagged)
    host = Counting()
    x = nested.requires_grad_()
    with offloading(nn.Module(), host):
        loss = (x * x).values().sum()
    loss.backward()
    assert x.grad is not None


def chained(order: BackwardOrder | None, host: PinnedHost, depth: int = 3) -> torch.Tensor:
    x = leaf(SIDE, SIDE)
    for _ in range(depth):
        with offloading(nn.Module(), host, order):
            x = x.exp().sin()
    return x.sum()


def given_by(loss: torch.Tensor, host: Counting, **options: bool) -> list[int]:
    """Storages that are on their way or back when each block's backward ends."""
    counts: list[int] = []
    node = loss.grad_fn
    while node is not None and node.next_functions:
        if type(node).__name__ == "ExpBackward0":
            node.register_hook(lambda *_: counts.append(len(host.given)))
        node = node.next_functions[0][0]
    loss.backward(**options)
    return counts


def test_one_block_is_fetched_ahead() -> None:
    # Each block saves the exponential (once for both ops).
    host = Counting()
    assert given_by(chained(None, host), host) == [1, 2, 3]
    host = Counting()
    assert given_by(chained(BackwardOrder(), host), host) == [2, 3, 3]


def test_what_is_over_is_not_fetched_again() -> None:
    host, order = Counting(), BackwardOrder()
    for micro_batch in range(1, 3):
        chained(order, host).backward()
        assert len(host.given) == 3 * micro_batch


def test_two_forwards_are_fetched_in_the_reverse_order() -> None:
    host, order = Counting(), BackwardOrder()
    first, second = chained(order, host), chained(order, host)
    # The last one fetched ahead is the other forward's.
    assert given_by(second, host) == [2, 3, 4]
    assert given_by(first, host) == [5, 6, 6]


def test_a_retained_graph_is_fetched_ahead_once() -> None:
    host = Counting()
    loss = chained(BackwardOrder(), host)
    assert given_by(loss, host, retain_graph=True) == [2, 3, 3]
    loss.backward()
    assert len(host.given) == 6


def test_a_copy_that_nobody_asks_for_is_waited_for_before_its_memory_goes() -> None:
    waited: list[bool] = []
    returning = Returning(torch.empty(1), lambda: waited.append(True))
    del returning
    assert waited == [True]


class Device:
    """A CUDA device whose every copy is told apart: a stream, its events and what is copied, all in one."""

    is_cuda, device, shape, dtype = True, torch.device("cuda", 0), (1,), torch.float32

    def __init__(self) -> None:
        self.begun = self.waited_for = 0

    def copy_(self, *_: object, **__: object) -> None:
        self.begun += 1

    def record_event(self) -> Any:
        number = self.begun

        class Event:
            def synchronize(event) -> None:  # noqa: N805  # the device is ``self``
                self.waited_for = number

        return Event()

    def wait_stream(self, _: object) -> None: ...
    def record_stream(self, _: object) -> None: ...


def test_copies_to_the_host_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = Device()
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: device)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: device)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch, "empty", lambda *_, **__: device)
    host, seen = PinnedHost(), []
    for _ in range(2 * MOST_LEAVING):
        host.take(device)
        seen.append(device.begun - device.waited_for)
    assert seen == [*range(1, MOST_LEAVING + 1), *[MOST_LEAVING] * MOST_LEAVING]


def test_what_is_copied_is_let_go_before_the_rest_is_copied() -> None:
    alive: list[int] = []

    class Watching(Counting):
        def take(self, flat: torch.Tensor) -> Any:
            refs.append(weakref.ref(flat))
            alive.append(sum(ref() is not None for ref in refs))
            return super().take(flat)

    refs: list[weakref.ref[torch.Tensor]] = []
    with offloading(nn.Module(), Watching()):
        loss = leaf(SIDE, SIDE).sin().sin().sin().sin().sum()
    loss.backward()
    assert alive == [1] * 4


class Streams:
    """CUDA streams as numbers of what each has been given to do and what it waits for, in one log."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait_stream(self, other: "Streams") -> None:
        self.log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: str) -> None:
        self.log.append(f"{self.name} waits for {event}")

    def record_event(self) -> str:
        return f"what {self.name} has copied"


def test_a_copy_back_has_a_stream_of_its_own_between_what_was_computed_and_what_will_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    computing, made = Streams(log, "computing"), iter(("returning", "leaving"))

    class Flat:
        device = torch.device("cuda", 0)

        def copy_(self, *_: object, **__: object) -> None:
            log.append("copy")

    monkeypatch.setattr(torch.cuda, "Stream", lambda _: Streams(log, next(made)))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: computing)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch, "empty", lambda *_, **__: Flat())
    returning = PinnedHost().give((torch.zeros(1), Flat.device))
    assert log == ["returning waits for computing", "returning waits for leaving", "copy"]
    returning.arrived()
    assert log[3:] == ["computing waits for what returning has copied"]


@pytest.mark.gpu
@pytest.mark.parametrize("order", [None, BackwardOrder()], ids=["in turn", "ahead"])
def test_pinned_memory_and_streams_of_their_own(order: BackwardOrder | None) -> None:
    module = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8))).cuda()
    x = torch.randn(4096, 1024, device="cuda", requires_grad=True)
    module(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    before = torch.cuda.memory_allocated()
    host = PinnedHost()
    y = x
    for block in module:
        with offloading(block, host, order):
            y = block(y)
    kept = torch.cuda.memory_allocated() - before
    assert kept <= 3 * x.nbytes
    y.sum().backward()
    torch.cuda.synchronize()
    assert all(map(torch.equal, expected, (parameter.grad for parameter in module.parameters())))
