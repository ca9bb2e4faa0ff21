"""What a selective block may keep of products without a bias, which PyTorch reshapes by ``_unsafe_view``."""

import torch
from torch import nn

from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.probe.cut import cut
from memplan.plan.checkpoint.blocks.probe.menu import menu
from memplan.plan.checkpoint.blocks.probe.read import read
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job
from tests.plan.checkpoint.blocks.steps import device, job, source

CUDA = device("h100-80g")


class FeedForward(nn.Module):
    """Two products; nothing in backward needs the second one's result."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 256, bias=False), nn.Linear(256, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.two(torch.sin(self.one(torch.cos(x))))


def test_a_product_without_a_bias_may_be_kept_where_its_result_is_needed() -> None:
    given = source(
        lambda: nn.Sequential(FeedForward(), FeedForward(), nn.Linear(64, 1)),
        lambda size: torch.ones(size, 16, 64),
        loss=lambda output, _: output.sum(),
    )
    trace = trace_job(lambda: given, job(), DeviceTraits.of(CUDA))
    reading = read(trace, cut(trace, ["0", "1"]))
    assert "aten._unsafe_view.default" in {op.name for op in trace.ops}
    options = menu(reading, reading.runs[0][0], Roofline.of(CUDA, "fp32"), selective=True, offload=False)
    products = {entry.calls for option in options for entry in option.saved if entry.op == "aten.mm.default"}
    assert products == {(0,)}
