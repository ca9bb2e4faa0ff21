"""Which GPUs a process sees, and where the driver says they are."""

import sys
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
import torch

from memplan.runtime.numa import topology as topology_module
from memplan.runtime.numa.driver import DriverGpu, nvidia_gpus, sysfs_address
from memplan.runtime.numa.limits import number_gpus
from memplan.runtime.numa.records import Device
from memplan.runtime.numa.system_files import SystemFiles
from memplan.runtime.numa.topology import read_topology, this_machine
from tests.runtime.numa.conftest import Trees
from tests.runtime.numa.machines import DGX_H100, GH200


def gpus(count: int, vendor: str = "nvidia", *, known: bool = True, kinds: int = 1) -> list[Device]:
    return [
        Device(kind="gpu", address=f"a{number}", vendor=vendor, name=f"kind {number % kinds}" if known else "", node=0,
               told_by="", uuid=f"GPU-{number}0f3" if known else "")
        for number in range(count)
    ]  # fmt: skip


def visible(environment: Mapping[str, str], vendor: str = "nvidia", *, known: bool = True) -> list[str]:
    numbered, _ = number_gpus(gpus(4, vendor, known=known), environment, {"MIG-aa": "GPU-20f3"})
    shown = [gpu for gpu in numbered if gpu.index is not None]
    assert [gpu.index for gpu in shown] == list(range(len(shown)))
    assert {gpu.address for gpu in numbered} == {"a0", "a1", "a2", "a3"}
    return [gpu.address for gpu in shown]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3,1", ["a3", "a1"]), ("", []), ("-1", []), ("0,-1,2", ["a0"]), ("1,9,2", ["a1"]), ("2,2", []),
        ("GPU-1,GPU-30f3", ["a1", "a3"]), ("GPU-", []), ("GPU-nothing", []), ("MIG-aa", ["a2"]),
        ("MIG-GPU-10f3/1/0", ["a1"]), (" 1 , 0", ["a1", "a0"]), ("x", []), ("99999999999999", []),
    ],
)  # fmt: skip
def test_cuda_visible_devices(value: str, expected: list[str]) -> None:
    assert visible({"CUDA_VISIBLE_DEVICES": value}) == expected


@pytest.mark.parametrize("value", ["3,1", "", "-1", "0,-1,2", "2,2", "1"])
def test_lists_of_numbers_are_read_as_torch_reads_them(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    theirs = [f"a{number}" for number in torch.cuda._parse_visible_devices()]
    assert visible({"CUDA_VISIBLE_DEVICES": value}) == theirs


def test_rocm_variables_follow_one_another() -> None:
    both = {"ROCR_VISIBLE_DEVICES": "1,2,3", "HIP_VISIBLE_DEVICES": "2,0", "CUDA_VISIBLE_DEVICES": "0"}
    assert visible(both, "amd") == ["a3", "a1"]


def test_identities_without_a_driver_are_told() -> None:
    assert visible({"CUDA_VISIBLE_DEVICES": "GPU-30f3"}, known=False) == ["a0", "a1", "a2", "a3"]
    _, notes = number_gpus(gpus(4, known=False), {"CUDA_VISIBLE_DEVICES": "GPU-30f3"}, {})
    assert notes == ("CUDA_VISIBLE_DEVICES=GPU-30f3 names GPUs by identity, which only their driver knows",)


def test_gpus_of_several_kinds_are_told() -> None:
    _, notes = number_gpus(gpus(4, kinds=2), {}, {})
    assert "fastest first" in notes[0]
    assert number_gpus(gpus(4, kinds=2), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, {})[1] == ()


class RefusedError(Exception):
    """NVML's error."""


def nvml(affinity: dict[int, list[int]], memory_node: int | None = None) -> SimpleNamespace:
    """Answers as NVML's documented functions do; handles are numbers."""

    def refuse(*_: object) -> int:
        raise RefusedError

    def mig(handle: int, place: int) -> str:
        return f"mig {handle}" if handle == 0 and place == 1 else refuse()  # type: ignore[return-value]

    return SimpleNamespace(
        NVMLError=RefusedError,
        NVML_AFFINITY_SCOPE_NODE=0,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(affinity),
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=f"00000000:{16 + 4 * handle:02X}:00.0".encode()),
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}" if isinstance(handle, int) else "MIG-of-0",
        nvmlDeviceGetName=lambda handle: "NVIDIA H100 80GB HBM3",
        nvmlDeviceGetMemoryAffinity=lambda handle, words, scope: affinity[handle] or refuse(),
        nvmlDeviceGetNumaNodeId=refuse if memory_node is None else lambda handle: memory_node,
        nvmlDeviceGetMaxMigDeviceCount=lambda handle: 2,
        nvmlDeviceGetMigDeviceHandleByIndex=mig,
    )


def test_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml({0: [0b10, 0], 1: []}, memory_node=1))
    found, why = nvidia_gpus()
    assert why == ""
    assert found == (
        DriverGpu(address="0000:10:00.0", uuid="GPU-0", name="NVIDIA H100 80GB HBM3", nodes=(1,), memory_node=1,
                  migs=("MIG-of-0",)),
        DriverGpu(address="0000:14:00.0", uuid="GPU-1", name="NVIDIA H100 80GB HBM3", nodes=(), memory_node=1, migs=()),
    )  # fmt: skip


def test_addresses_are_written_as_the_kernel_does() -> None:
    assert sysfs_address("00000000:3B:00.0") == "0000:3b:00.0"
    assert sysfs_address("0000000A:C1:00.0") == "000a:c1:00.0"


def test_nodes_beyond_the_first_64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml({0: [0, 0b101]}))
    found, _ = nvidia_gpus()
    assert found
    assert found[0].nodes == (64, 66)


def test_a_driver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = nvml({0: []})
    broken.nvmlInit = lambda: broken.nvmlDeviceGetMemoryAffinity(0, 1, 0)
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    assert nvidia_gpus()[0] is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvidia_gpus() == (None, "NVML was not asked: nvidia-ml-py is not installed")


def test_only_the_drivers_gpus_count(trees: Trees) -> None:
    """In a container the bus shows all of the host's GPUs, and the driver those that were given to it."""
    told = [DriverGpu(address="0000:20:00.0", uuid="GPU-x", name="H100", nodes=(), memory_node=None, migs=("MIG-y",))]
    found = read_topology(SystemFiles(trees(DGX_H100)), driver=told, environment={"CUDA_VISIBLE_DEVICES": "MIG-y"})
    assert [(gpu.address, gpu.node, gpu.index) for gpu in found.gpus] == [("0000:20:00.0", 1, 0)]


def test_the_drivers_node_is_taken_where_the_bus_has_none(trees: Trees) -> None:
    gone = DriverGpu(address="0000:ee:00.0", uuid="GPU-x", name="H100", nodes=(1,), memory_node=None, migs=())
    (gpu,) = read_topology(SystemFiles(trees(DGX_H100)), driver=[gone]).gpus
    assert (gpu.node, gpu.told_by) == (1, "NVML")


def test_the_memory_of_a_gpu_is_not_the_node_that_it_hangs_on(trees: Trees) -> None:
    told = DriverGpu(address="0009:01:00.0", uuid="GPU-x", name="GH200", nodes=(0,), memory_node=1, migs=())
    (gpu,) = read_topology(SystemFiles(trees(GH200)), driver=[told]).gpus
    assert (gpu.node, gpu.memory_node) == (0, 1)


def test_gpus_of_the_bus_alone_are_told(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_module, "nvidia_gpus", lambda: (None, "NVML does not answer: x"))
    found = this_machine(SystemFiles(trees(DGX_H100)))
    assert found.notes == ("NVML does not answer: x; the GPUs are those of the bus, a container may have fewer",)
