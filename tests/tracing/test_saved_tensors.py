"""Saved-tensor hooks: what is packed away for backward leaves the device."""

import torch

from memplan.lifetime.build import build_lifetimes
from memplan.tracing.records import DeviceTraits
from tests.tracing.jobs import source, trace

GPU = DeviceTraits(kind="cuda", capability=(8, 0))
WIDTH, LAYERS, BATCH, FLOAT = 512, 6, 1024, 4
ROWS = BATCH * WIDTH * FLOAT


class Deep(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).sigmoid()
        return x


class OnHost(Deep):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu():
            return super().forward(x)


class Halved(Deep):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def pack(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.half()

        with torch.autograd.graph.saved_tensors_hooks(pack, torch.Tensor.float):
            return super().forward(x)


def bytes_at_the_turn(model: type[torch.nn.Module]) -> int:
    """Activations alive on the device when backward begins."""
    given = source(model, lambda size: torch.randn(size, WIDTH), loss=lambda output, batch: output.sum())
    lifetimes = build_lifetimes(trace(given, GPU, batch_size=BATCH))
    step = lifetimes.trace.steps[0]
    turn = next(op.index for op in lifetimes.trace.ops[step.first_op :] if op.phase == "backward")
    alive = [buffer for buffer in lifetimes.buffers.values() if buffer.start < turn < buffer.end]
    return sum(buffer.nbytes for buffer in alive if buffer.category == "activation" and buffer.nbytes >= ROWS // 2)


def test_plain_backward_needs_one_result_a_layer() -> None:
    assert bytes_at_the_turn(Deep) == LAYERS * ROWS


def test_what_is_saved_on_the_host_takes_no_device_memory() -> None:
    # The loop's own output is all that stays.
    assert bytes_at_the_turn(OnHost) == ROWS


def test_a_pack_hook_that_casts_halves_what_is_saved() -> None:
    # Each layer saves its input and its weight for the product, its result for the sigmoid: all packed as halves, twice
    # where two nodes save the same tensor. The output itself lives on in the loop.
    inputs, results = LAYERS, LAYERS
    assert bytes_at_the_turn(Halved) == ROWS + (inputs + results) * ROWS // 2 + LAYERS * 0
