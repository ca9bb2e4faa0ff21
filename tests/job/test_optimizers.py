"""Optimizer memory under fake tensors, against arithmetic written by hand from the libraries' papers and sources."""

import contextlib
import math
import weakref
from typing import get_args

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memplan.errors import ExitCode, UsageError
from memplan.job.optimizers import IMPLEMENTATIONS, make_optimizer
from memplan.job.spec import OptimizerImpl, OptimizerName

SHAPES = [(400, 300), (70, 100), (4096,), (4095,), (7,)]
"""120,000 elements (paged), 7,000 (the last block not full), 4,096 (exactly at the limit of 8 bits), two smaller."""
NUMELS = [math.prod(shape) for shape in SHAPES]
ALL = sum(NUMELS)


class Allocations(TorchDispatchMode):
    """Live bytes of storages born inside, told apart by whether the op that made them was given a device tensor."""

    def __init__(self):
        super().__init__()
        self.live = self.peak = 0
        self._known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for given in tree_leaves((args, kwargs)):
            if isinstance(given, torch.Tensor):
                self._known.add(given.untyped_storage()._cdata)
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if isinstance(made, torch.Tensor) and made.untyped_storage()._cdata not in self._known:
                self._born(made.untyped_storage())
        return result

    def _born(self, storage):
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._died, key, size).atexit = False

    def _died(self, key, size):
        self._known.discard(key)
        self.live -= size


def parameters(dtype=torch.float32):
    made = [torch.nn.Parameter(torch.empty(shape, dtype=dtype)) for shape in SHAPES]
    for each in made:
        each.grad = torch.empty_like(each)
    return made


def state_tensors(optimizer):
    """Tensors of the state, each storage once; torch's ``step`` counters (host scalars) left out."""
    tensors = [leaf for key, leaf in state_items(optimizer) if isinstance(leaf, torch.Tensor) and key != "step"]
    return list({tensor.untyped_storage()._cdata: tensor for tensor in tensors}.values())


def state_items(optimizer):
    return [item for state in optimizer.state.values() for item in state.items()]


def nbytes(tensors):
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def stepped(name, *, impl="auto", dtype=torch.float32):
    optimizer = make_optimizer(name, parameters(dtype), impl=impl)
    optimizer.step()
    return optimizer


def tensors_for(name):
    """Fake tensors, but for Adafactor: its ``.item()`` needs values, which a trace (not this room) supplies."""
    return contextlib.nullcontext() if name == "adafactor" else FakeTensorMode()


EIGHT_BIT = [numel for numel in NUMELS if numel >= 4096]
SMALL = [numel for numel in NUMELS if numel < 4096]
ADAFACTOR = 4 * (400 + 300 + 70 + 100 + 4096 + 4095 + 7)
"""Rows plus columns of matrices, whole vectors (Shazeer & Stern 2018)."""
EIGHT_BIT_BYTES = 2 * (sum(EIGHT_BIT) + 4 * (469 + 28 + 16)) + 2 * 256 * 4 + 8 * sum(SMALL)
"""Two bytes an element, two fp32 maxima per 256 (469, 28, 16 blocks), two shared maps; two fp32 states for the rest."""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adamw", 8 * ALL),
        ("adam", 8 * ALL),
        ("sgd", 0),
        ("sgd-momentum", 4 * ALL),
        ("adagrad", 4 * ALL),
        ("adafactor", ADAFACTOR),
        ("lion", 4 * ALL),
        ("adamw-8bit", EIGHT_BIT_BYTES),
        ("paged-adamw-8bit", EIGHT_BIT_BYTES),
    ],
)
def test_state_bytes_of_fp32_parameters(name, expected):
    with tensors_for(name):
        assert nbytes(state_tensors(stepped(name))) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    # States follow the parameter's dtype, except bitsandbytes', which are uint8 and fp32 whatever it is.
    [("adamw", 4 * ALL), ("lion", 2 * ALL), ("adamw-8bit", EIGHT_BIT_BYTES)],
)
def test_state_bytes_of_bf16_parameters(name, expected):
    with FakeTensorMode():
        assert nbytes(state_tensors(stepped(name, dtype=torch.bfloat16))) == expected


def test_only_big_states_of_the_paged_optimizer_leave_the_device():
    with FakeTensorMode():
        paged = [each for each in state_tensors(stepped("paged-adamw-8bit")) if getattr(each, "is_paged", False)]
    assert [(each.dtype, each.numel()) for each in paged] == [(torch.uint8, 120_000)] * 2


def test_the_unpaged_optimizer_pages_nothing():
    with FakeTensorMode():
        assert not any(hasattr(each, "is_paged") for each in state_tensors(stepped("adamw-8bit")))


@pytest.mark.parametrize("name", ["adamw-8bit", "paged-adamw-8bit", "sgd"])
def test_a_later_step_allocates_nothing(name):
    with FakeTensorMode():
        optimizer = stepped(name)
        with Allocations() as later:
            optimizer.step()
    assert later.peak == 0


@pytest.mark.parametrize(
    ("impl", "expected"),
    # The loop has a copy and its successor of the largest parameter; the lists have a copy of every momentum.
    [("loop", 2 * 4 * max(NUMELS)), ("foreach", 4 * ALL)],
)
def test_temporaries_of_lion(impl, expected):
    with FakeTensorMode():
        optimizer = stepped("lion", impl=impl)
        with Allocations() as later:
            optimizer.step()
    assert later.peak == expected
    assert later.live == 0


@pytest.mark.parametrize("impl", ["loop", "foreach"])
def test_lion_follows_its_paper(impl):
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(50))
    optimizer = make_optimizer("lion", [parameter], impl=impl)
    theta, momentum = parameter.detach().double(), torch.zeros(50, dtype=torch.double)
    for _ in range(3):
        parameter.grad = torch.randn(50)
        optimizer.step()
        theta = theta - 1e-4 * torch.sign(0.9 * momentum + 0.1 * parameter.grad)
        momentum = 0.99 * momentum + 0.01 * parameter.grad
    torch.testing.assert_close(parameter.detach().double(), theta, atol=1e-6, rtol=0)
    torch.testing.assert_close(optimizer.state[parameter]["exp_avg"].double(), momentum, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("name", "impl"), [(name, impl) for name in get_args(OptimizerName) for impl in get_args(OptimizerImpl)]
)
def test_every_implementation_steps_or_is_refused(name, impl):
    with tensors_for(name):
        if impl in IMPLEMENTATIONS[name]:
            stepped(name, impl=impl)
            return
        with pytest.raises(UsageError, match=f"no {impl} implementation") as caught:
            make_optimizer(name, parameters(), impl=impl)
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.where == "--optimizer-impl"


def test_implementations_are_the_ones_asked_for():
    with FakeTensorMode():
        loop, foreach, fused = (
            make_optimizer("adamw", parameters(), impl=impl) for impl in ("loop", "foreach", "fused")
        )
    assert (loop.defaults["foreach"], loop.defaults["fused"]) == (False, None)
    assert (foreach.defaults["foreach"], foreach.defaults["fused"]) == (True, None)
    assert fused.defaults["fused"] is True


@pytest.mark.parametrize("name", ["lion", "adamw-8bit"])
def test_parameters_without_gradient_get_no_state(name):
    with FakeTensorMode():
        frozen, trained = torch.nn.Parameter(torch.empty(5000)), torch.nn.Parameter(torch.empty(5000))
        trained.grad = torch.empty(5000)
        optimizer = make_optimizer(name, [frozen, trained])
        optimizer.step()
        optimizer.zero_grad()
        optimizer.step()
    assert list(optimizer.state) == [trained]
