"""Programs that capture CUDA graphs are traced as they stand, and the report says what is missing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from memplan.measure.records import Estimate
from memplan.tracing.cuda.graphs import NOT_CAPTURED

PROGRAM = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters(), capturable=True)
x = torch.randn(64, 256, device="cuda")

def step():
    optimizer.zero_grad(set_to_none=True)
    net(x).square().mean().backward()
    optimizer.step()

{body}
"""
PLAIN = "for _ in range(10):\n    step()"
WHOLE = """
for _ in range({warm_up}):
    step()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
    step()
for _ in range(10):
    x.copy_(torch.randn(64, 256))
    graph.replay()
"""
CALLS = "net = torch.cuda.make_graphed_callables(net, (x,))\n" + PLAIN


@pytest.mark.parametrize("body", [WHOLE.format(warm_up=3), WHOLE.format(warm_up=1), CALLS])
def test_steps_are_those_of_the_program_without_graphs(body: str, estimated: Callable[..., Estimate]) -> None:
    captured, plain = (estimated(PROGRAM.format(body=each)) for each in (body, PLAIN))
    assert captured.peak.requested_bytes == plain.peak.requested_bytes
    assert NOT_CAPTURED in captured.not_modelled
    assert NOT_CAPTURED not in plain.not_modelled


def test_a_module_of_the_program_may_capture_them(estimated: Callable[..., Estimate], tmp_path: Path) -> None:
    (tmp_path / "captures.py").write_text("import torch\n\ndef later():\n    return torch.cuda.CUDAGraph()\n")
    assert NOT_CAPTURED in estimated("import captures\n" + PROGRAM.format(body=PLAIN)).not_modelled


def test_no_graph_is_captured_on_a_cpu(estimated: Callable[..., Estimate]) -> None:
    on_cpu = PROGRAM.format(body=PLAIN).replace(".cuda()", "").replace(', device="cuda"', "")
    text = on_cpu.replace("capturable=True", "") + "\n# torch.cuda.CUDAGraph\n"
    assert NOT_CAPTURED not in estimated(text, gpu="cpu").not_modelled
