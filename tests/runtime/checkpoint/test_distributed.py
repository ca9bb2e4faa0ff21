"""Plans with DDP and FSDP2, put on before and after the wrapper: equal to the wrapped model without a plan."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import memplan
from memplan.runtime.checkpoint.blocks import fingerprint, repeated_blocks
from memplan.runtime.checkpoint.records import Action, CheckpointPlan
from tests.runtime.checkpoint.chains import PLANS, Chain, Plain, assert_equal, blocks, rows, seeded, segment
from tests.support.ranks import real_ranks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


HAS_FSDP2 = hasattr(torch.cpu.Stream, "record_event")


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    file = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Normed(Plain):
    """A block without buffers, which FSDP2 leaves to others, with parameters in a submodule sharded on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return x + self.dropout(super().forward(x, scale=scale))


def sharded(model: Any, *, inside: bool = False) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        if inside:
            fully_shard(layer.wide, mesh=mesh)
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model  # type: ignore[no-any-return]


def whole(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def step(model: nn.Module) -> dict[str, torch.Tensor]:
    """Loss, gradients and, after a step of the optimizer, parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(3)
    losses = []
    for _ in range(2):
        loss = model(rows() + (dist.get_rank() if dist.is_initialized() else 0)).pow(2).mean()
        loss.backward()
        losses.append(loss.detach())
    gradients = {f"gradient {name}": whole(parameter.grad) for name, parameter in model.named_parameters()}
    optimizer.step()
    parameters = {name: whole(parameter.detach()) for name, parameter in model.named_parameters()}
    buffers = {f"buffer {name}": buffer for name, buffer in model.named_buffers()}
    return {"losses": torch.stack(losses)} | gradients | parameters | buffers


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("name", ["nested", "mixed"])
@pytest.mark.parametrize("is_planned_first", [True, False], ids=["plan first", "DDP first"])
def test_ddp(name: str, *, is_planned_first: bool) -> None:
    plan = PLANS[name]
    plain = DistributedDataParallel(seeded(Chain))
    model = seeded(Chain)
    if is_planned_first:
        memplan.apply(model, plan)
        planned = DistributedDataParallel(model)
    else:
        planned = DistributedDataParallel(model)
        memplan.apply(planned, plan)
    assert_equal(step(planned), step(plain))


# torch's selective checkpointing refuses forwards that gather parameters, as those of parts sharded on their own do:
# the second run gathers at other moments.
SHARDED = [("mixed", False), ("nested", False), ("offload", False), ("checkpoint", True), ("segment", True)]


@pytest.mark.skipif(not HAS_FSDP2, reason="torch 2.6 has no FSDP2 on CPUs")
@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(("name", "inside"), SHARDED)
@pytest.mark.parametrize("is_planned_first", [True, False], ids=["plan first", "FSDP first"])
def test_fsdp2(name: str, *, inside: bool, is_planned_first: bool) -> None:
    plan = PLANS[name]

    def build() -> nn.Module:
        return Chain(4, Normed)

    plain, planned = sharded(seeded(build), inside=inside), seeded(build)
    if is_planned_first:
        memplan.apply(planned, plan)
        sharded(planned, inside=inside)
    else:
        memplan.apply(sharded(planned, inside=inside), plan)
    assert_equal(step(planned), step(plain))


@pytest.mark.usefixtures("group")
def test_a_fingerprint_survives_sharding() -> None:
    names = repeated_blocks(Chain())
    bare = fingerprint(Chain(), names)
    assert fingerprint(sharded(Chain()), names) == bare
    assert fingerprint(DistributedDataParallel(Chain()), names) == bare


def _planned_and_plain(rank: int, world: int) -> bool:
    plan = CheckpointPlan(
        blocks=(*blocks(Action.CHECKPOINT, 0), *blocks(Action.OFFLOAD, 3)),
        segments=(segment(0, 1, 2), segment(1, 2)),
    )
    for wrap in (DistributedDataParallel, sharded) if HAS_FSDP2 else (DistributedDataParallel,):
        plain, planned = (wrap(seeded(lambda: Chain(4, Normed))) for _ in range(2))
        memplan.apply(planned, plan)
        assert_equal(step(planned), step(plain))
    return dist.get_rank() == rank and dist.get_world_size() == world


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    assert real_ranks(_planned_and_plain, 2, tmp_path) == [True, True]
