"""``--compile inductor`` where Inductor can lower forward and not backward."""

import gc
import warnings
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch._functorch import config
from torch._inductor.lowering import lowerings

from memplan.tracing.records import DeviceTraits
from tests.tracing.jobs import source, trace

WIDTH, ROWS = 64, 8
GPU = DeviceTraits(kind="cuda", capability=(8, 0))


@pytest.fixture(scope="module")
def model() -> Iterator[type[nn.Module]]:
    """A model with an op of whose backward Inductor knows no lowering, and falls over."""
    with torch.library._scoped_library("memplan_test_backward", "FRAGMENT"):

        @torch.library.custom_op("memplan_test_backward::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @torch.library.custom_op("memplan_test_backward::twice_backward", mutates_args=())
        def twice_backward(gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

        twice.register_fake(torch.empty_like)
        twice_backward.register_fake(torch.empty_like)
        twice.register_autograd(lambda _, gradient: twice_backward(gradient))

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.second(twice(self.first(x)))

        def fall(*_: object, **__: object) -> None:
            raise RuntimeError("no lowering of backward")

        op = torch.ops.memplan_test_backward.twice_backward.default
        lowerings[op] = fall
        yield Net
        del lowerings[op]


@pytest.mark.skipif(not hasattr(config, "force_non_lazy_backward_lowering"), reason="this torch lowers backward late")
def test_a_backward_that_cannot_be_lowered_leaves_its_region_to_eager_code(model: type[nn.Module]) -> None:
    job = source(model, lambda size: torch.randn(size, WIDTH), loss=lambda output, _: output.pow(2).mean())
    recorded = trace(job, GPU, batch_size=ROWS, compile="inductor")
    assert any("Net was traced as eager: " in said and "no lowering" in said for said in recorded.not_modelled)
    eager = trace(job, GPU, batch_size=ROWS)
    histories = [
        [(event.action, each.storages[event.storage].nbytes) for event in each.events] for each in (recorded, eager)
    ]
    assert histories[0] == histories[1]


def test_nothing_stays_frozen_for_the_garbage_collector() -> None:
    gc.unfreeze()  # What the tests froze before.
    before = gc.get_freeze_count()
    job = source(lambda: nn.Linear(WIDTH, WIDTH), lambda size: torch.randn(size, WIDTH), loss=lambda y, _: y.sum())
    trace(job, GPU, batch_size=ROWS, compile="inductor")
    assert gc.get_freeze_count() == before


class Caught:
    """What holds itself, as an exception that torch keeps."""

    def __init__(self) -> None:
        self.own = self


def test_garbage_of_compiling_is_collected_where_what_was_imported_is_frozen() -> None:
    """As in every estimate: what an exception keeps would hold the step's batch and gradients to the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from memplan.tracing.inductor import lowering  # noqa: PLC0415 - importing it warns, as torch does.

    gc.disable()
    gc.freeze()
    try:
        with lowering._leaving_no_garbage():
            caught = weakref.ref(Caught())
        assert caught() is None
    finally:
        gc.unfreeze()
        gc.enable()
