"""What memplan writes, frameworks train from: one step of a tiny model on CPUs, in processes of its own."""

import importlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memplan.job.parallel import parse_parallel
from tests.emit.frameworks import launched, needed, write
from tests.emit.setups import setup

ROOT = Path(__file__).parents[2]
RUN = Path(__file__).parent / "real_run.py"
STEP = {"checkpoint": "full", "grad_accum": 2, "clip_grad_norm": 0.5}


def run(framework: str, folder: Path, ranks: int = 1, **more: str) -> dict[str, Any]:
    """What one rank said, once all of them have ended well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(RUN), framework, str(folder)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **more, **_rank(rank, group if ranks > 1 else {})},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate(timeout=500)[1] for process in running]
    assert [process.returncode for process in running] == [0] * ranks, said[0][-2000:]
    found: dict[str, Any] = json.loads((folder / "said.json").read_text())
    return found


def _rank(rank: int, group: dict[str, str]) -> dict[str, str]:
    return {**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} if group else {}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
@pytest.mark.parametrize(("optimizer", "name"), [("adamw", "AdamW"), ("sgd", "SGD")])
def test_a_trainer_takes_a_step(precision: str, optimizer: str, name: str, tmp_path: Path) -> None:
    needed("accelerate", "1.15")
    needed("transformers", "5.23")
    write(setup(precision=precision, optimizer=optimizer, **STEP), "hf", tmp_path)
    said = run("trainer", tmp_path)
    assert (said["steps"], said["sizes"], said["again"]) == (1, [4, 4], 2 * 2)
    assert (said["optimizer"], said["clips"]) == (name, 0.5)
    assert said["mixed"] == ("bf16" if precision == "bf16-mixed" else "no")


@pytest.mark.slow
def test_a_trainer_checkpoints_only_where_it_is_said(tmp_path: Path) -> None:
    needed("accelerate", "1.15")
    needed("transformers", "5.23")
    write(setup(grad_accum=2, optimizer_impl="fused"), "hf", tmp_path)
    said = run("trainer", tmp_path)
    assert (said["sizes"], said["again"], said["fused"], said["clips"]) == ([4, 4], 2, True, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_an_accelerator_takes_a_step(ranks: int, tmp_path: Path) -> None:
    """Data parallel: on CPUs accelerate shares nothing by FSDP, whatever its file says."""
    needed("accelerate", "1.15")
    needed("transformers", "5.23")
    path = write(setup(parallel=parse_parallel("ddp=2" if ranks == 2 else "none")), "accelerate", tmp_path)
    said = run("accelerate", tmp_path, ranks, **_as_launched(path) | {"ACCELERATE_USE_CPU": "true"})
    assert (said["ranks"], said["mixed"]) == (ranks, "bf16")
    assert said["kind"] == ("MULTI_CPU" if ranks == 2 else "NO")
    assert said["wrapped"] == ("DistributedDataParallel" if ranks == 2 else "LlamaForCausalLM")
    assert said["states"] > 0


def _as_launched(path: Path) -> dict[str, str]:
    """What ``accelerate launch`` puts into the environment of the processes that it starts."""
    launch = importlib.import_module("accelerate.utils.launch")
    args = launched(path)
    found = launch.prepare_multi_gpu_env(args) if args.multi_gpu or args.use_fsdp else None
    if found is None:
        _, found = launch.prepare_simple_launcher_cmd_env(args)
    return {name: value for name, value in found.items() if name.startswith(("ACCELERATE", "FSDP", "PARALLELISM"))}


@pytest.mark.parametrize(
    ("parallel", "version"), [("fsdp=8,reshard=no", 2), ("fsdp=8,offload=yes", 2), ("fsdp1=8,reshard=no", 1)]
)
def test_accelerates_plugin_is_what_the_setup_says(
    parallel: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin as a launched process makes it: from the environment alone."""
    needed("accelerate", "1.15")
    mesh = parse_parallel(parallel)
    path = write(setup(parallel=mesh, checkpoint="full"), "accelerate", tmp_path)
    # Sending rank 0's weights to the others needs a device, which is not here.
    here = {"FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
    for name, value in (_as_launched(path) | here).items():
        monkeypatch.setenv(name, value)
    plugin = importlib.import_module("accelerate.utils.dataclasses").FullyShardedDataParallelPlugin()
    assert (plugin.fsdp_version, plugin.activation_checkpointing) == (version, True)
    if version == 2:
        assert plugin.reshard_after_forward is mesh.reshard
        assert type(plugin.cpu_offload).__name__ == ("CPUOffloadPolicy" if mesh.offload else "OffloadPolicy")
    else:
        assert plugin.sharding_strategy.name == "SHARD_GRAD_OP"


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeed_takes_a_step(stage: int, tmp_path: Path) -> None:
    needed("deepspeed", "0.19")
    needed("transformers", "5.23")
    write(setup(parallel=parse_parallel(f"zero{stage}=2"), **STEP), "deepspeed", tmp_path)
    said = run("deepspeed", tmp_path, 2, DS_ACCELERATOR="cpu")
    assert (said["stage"], said["ranks"], said["sizes"], said["steps"]) == (stage, 2, [4, 4], 1)
    assert (said["clips"], said["half"]) == (0.5, True)
