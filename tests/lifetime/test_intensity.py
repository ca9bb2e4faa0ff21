"""Operational intensity of ops, and the side of the roofline that they lie on; worked out by hand."""

import pytest
import torch
from torch import nn

from memplan.lifetime.intensity import OpIntensity, intensities
from memplan.lifetime.roofline import Roofline
from tests.tracing.jobs import source, trace

ROWS, WIDE = 256, 512
RATES = Roofline(flops=1e12, bandwidth=1e11, assumed=False)


def of_a_layer(rates: Roofline) -> dict[str, OpIntensity]:
    given = source(
        lambda: nn.Sequential(nn.Linear(WIDE, WIDE, bias=False), nn.ReLU()),
        lambda size: torch.randn(size, WIDE),
        loss=lambda output, _: output.sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=False),
    )
    return {f"{each.phase} {each.name}": each for each in intensities(trace(given, batch_size=ROWS), rates)}


def test_a_product_is_bound_by_the_cores_and_a_relu_by_the_memory() -> None:
    found = of_a_layer(RATES)
    product = next(each for name, each in found.items() if name.startswith("forward aten.mm"))
    relu = next(each for name, each in found.items() if name.startswith("forward aten.relu"))
    moved = 4 * (ROWS * WIDE + WIDE * WIDE + ROWS * WIDE)
    assert (product.calls, product.flops, product.bytes_moved) == (1, 2 * ROWS * WIDE * WIDE, moved)
    assert product.intensity == pytest.approx(2 * ROWS * WIDE * WIDE / moved)
    assert RATES.ridge == 10
    assert (product.bound, relu.bound) == ("compute", "memory")
    assert relu.seconds == pytest.approx(relu.bytes_moved / RATES.bandwidth)


def test_a_faster_device_makes_the_same_product_bound_by_its_memory() -> None:
    found = of_a_layer(Roofline(flops=1e15, bandwidth=1e11, assumed=False))
    assert {each.bound for each in found.values()} == {"memory"}


def test_ops_come_in_order_of_their_time_and_views_are_left_out() -> None:
    found = list(of_a_layer(RATES).values())
    assert [each.seconds for each in found] == sorted((each.seconds for each in found), reverse=True)
    assert not [each.name for each in found if each.name.startswith(("aten.t.", "aten.detach"))]
