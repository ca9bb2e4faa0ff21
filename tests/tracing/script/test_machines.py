"""Programs that ask which machine they are on, start processes on it, or name its GPU in old ways."""

from collections.abc import Callable

import pytest

from memplan.errors import EstimateError
from memplan.job.parallel import Parallel
from memplan.measure.records import Estimate

HEAD = """
import torch
from torch.nn import functional as F
from net import build
"""
LOOP = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1000):
        loss = model({batch}).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
PLAIN = (
    HEAD + 'def main(rank, *_):\n    model = build().to("cuda")' + LOOP.format(batch='torch.randn(32, 64).to("cuda")')
)
BY_NUMBER = (
    HEAD + "def main(rank, *_):\n    model = build().to(rank)" + LOOP.format(batch="torch.randn(32, 64).to(rank)")
)
ACCELERATOR = """
    import torch.accelerator as gpu
    assert gpu.is_available() and gpu.device_count() == 1
    assert gpu.current_accelerator(check_available=True).type == "cuda"
    gpu.set_device_index(0)
    if hasattr(gpu, "memory_allocated"):
        assert gpu.memory_allocated() == gpu.max_memory_reserved() == 0 and not gpu.memory_stats()["any"]
        gpu.reset_peak_memory_stats()
        gpu.empty_cache()
    if hasattr(gpu, "device_index"):
        with gpu.device_index(0):
            gpu.synchronize()
    if hasattr(gpu, "get_device_capability"):
        assert torch.float16 in gpu.get_device_capability()["supported_dtypes"]
    device = gpu.current_accelerator()
"""
LEGACY = """
    Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    valid = Tensor(32, 1).fill_(1.0)
    assert isinstance(valid, torch.cuda.FloatTensor) and valid.type() == "torch.cuda.FloatTensor"
    assert not isinstance(torch.randn(2), torch.cuda.FloatTensor) and torch.randn(2).type() == "torch.FloatTensor"
    assert torch.cuda.LongTensor([1, 2, 3]).shape == (3,) and torch.cuda.HalfTensor(torch.Size([2, 3])).shape == (2, 3)
    assert valid.type(torch.FloatTensor).type() == "torch.FloatTensor"
    assert valid.type(torch.float16).type() == "torch.cuda.HalfTensor"
    assert valid.long().type("torch.cuda.DoubleTensor").dtype is torch.float64
"""


def reserved(estimate: Estimate) -> int:
    return estimate.peak.reserved_bytes


def test_a_number_alone_is_the_gpu(estimated: Callable[..., Estimate]) -> None:
    peak = reserved(estimated(PLAIN + "main(0)\n"))
    assert reserved(estimated(BY_NUMBER + "main(0)\n")) == peak
    assert reserved(estimated(BY_NUMBER.replace(".to(rank)", ".to(device=rank)") + "main(0)\n")) == peak


def test_any_accelerator_is_the_gpu(estimated: Callable[..., Estimate]) -> None:
    text = PLAIN.replace("def main(rank, *_):", f"def main(rank, *_):{ACCELERATOR}").replace('"cuda")', "device)")
    assert reserved(estimated(text + "main(0)\n")) == reserved(estimated(PLAIN + "main(0)\n"))


def test_old_constructors_make_tensors_on_the_gpu(estimated: Callable[..., Estimate]) -> None:
    text = PLAIN.replace("def main(rank, *_):", f"def main(rank, *_):{LEGACY}")
    batch = text.replace('torch.randn(32, 64).to("cuda")', "torch.randn(32, 64).type(Tensor)")
    held = 32 * 4  # ``valid``
    plain = estimated(PLAIN + "main(0)\n").peak.requested_bytes
    assert estimated(batch + "main(0)\n").peak.requested_bytes == plain + held


@pytest.mark.parametrize("default", ["'torch.cuda.FloatTensor'", "torch.cuda.FloatTensor"])
def test_a_default_type_puts_tensors_on_the_gpu(default: str, estimated: Callable[..., Estimate]) -> None:
    told = f"def main(rank, *_):\n    torch.set_default_tensor_type({default})"
    text = PLAIN.replace("def main(rank, *_):", told).replace('torch.randn(32, 64).to("cuda")', "torch.randn(32, 64)")
    plain = estimated(PLAIN + "main(0)\n").peak.requested_bytes
    assert estimated(text + "main(0)\n").peak.requested_bytes == plain


@pytest.mark.parametrize(
    "start",
    [
        "torch.multiprocessing.spawn(main, args=(2,), nprocs=2)",
        "from torch.multiprocessing import start_processes\nstart_processes(main, (2,), 2)",
        "\n".join((
            "import torch.multiprocessing as mp",
            "ranks = [mp.get_context('spawn').Process(target=main, args=(rank, 2)) for rank in range(2)]",
            "for rank in ranks: rank.start()",
            "for rank in ranks: rank.join(); assert rank.exitcode == 0",
        )),
    ],
    ids=["spawn", "start_processes", "processes"],
)  # fmt: skip
def test_the_first_rank_runs_where_it_is_seen(start: str, estimated: Callable[..., Estimate]) -> None:
    estimate = estimated(f"{BY_NUMBER}\nif __name__ == '__main__':\n    " + start.replace("\n", "\n    ") + "\n")
    assert reserved(estimate) == reserved(estimated(PLAIN + "main(0)\n"))
    assert any("the first runs in the program's own" in sentence for sentence in estimate.assumptions)


def test_a_process_that_others_talk_to_is_refused(estimated: Callable[..., Estimate]) -> None:
    text = (
        "import multiprocessing as mp\ndef work(pipe): pipe.recv()\n"
        "mp.Process(target=work, args=mp.Pipe()[:1]).start()\n"
    )
    with pytest.raises(EstimateError, match="starting processes"):
        estimated(text)


def test_what_a_pool_works_on_is_real(estimated: Callable[..., Estimate]) -> None:
    pool = (
        "import multiprocessing\nwith multiprocessing.Pool(4) as pool:\n    assert pool.map(abs, [-1, 2]) == [1, 2]\n"
    )
    assert estimated(pool + PLAIN + "main(0)\n").repeats


def test_a_program_finds_as_many_gpus_as_ranks(estimated: Callable[..., Estimate]) -> None:
    text = PLAIN + "assert torch.cuda.device_count() == torch.accelerator.device_count() == 4\nmain(0)\n"
    assert estimated(text, parallel=Parallel(data="ddp", replicas=4)).repeats


SHARDED = """
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

distributed.init_process_group("nccl")
with torch.device("meta"):
    model = torch.nn.Sequential(torch.nn.Embedding(100, 64), torch.nn.Linear(64, 256), torch.nn.Linear(256, 10))
fully_shard(model)
model.to_empty(device="cuda")
for part in model:
    RESET
optimizer = torch.optim.Adam(model.parameters())
for step in range(10):
    model(torch.randint(0, 100, (8,), device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["part.reset_parameters()", "torch.nn.init.trunc_normal_(part.weight)"])
def test_shards_are_initialised_on_the_gpu(reset: str, estimated: Callable[..., Estimate]) -> None:
    two = Parallel(data="ddp", replicas=2)
    peaks = [estimated(SHARDED.replace("RESET", each), parallel=two).peak for each in (reset, "...")]
    parameters = 100 * 64 + 64 * 256 + 256 + 256 * 10 + 10
    assert peaks[0].requested_bytes == peaks[1].requested_bytes > 3 * 4 * parameters // 2


HOOKED = """
import torch
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

distributed.init_process_group("nccl")
net = torch.nn.Sequential(torch.nn.Linear(1024, 1024, bias=False), torch.nn.Linear(1024, 1024, bias=False)).cuda()
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=100)
HOOK
optimizer = torch.optim.SGD(model.parameters())
for step in range(10):
    optimizer.zero_grad()
    model(torch.randn(4, 1024, device="cuda")).sum().backward()
    optimizer.step()
"""
POWER = (
    "powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook"
)


@pytest.mark.slow
def test_communication_hooks_of_ddp_take_what_they_take(estimated: Callable[..., Estimate]) -> None:
    """Halves of a bucket while it is reduced; PowerSGD keeps its errors, as large as all gradients."""
    hooks = ("None, default_hooks.allreduce_hook", "None, default_hooks.bf16_compress_hook", POWER)
    plain, alike, halved, kept = (
        estimated(HOOKED.replace("HOOK", text), parallel=Parallel(data="ddp", replicas=4)).peak.requested_bytes
        for text in ("", *(f"model.register_comm_hook({hook})" for hook in hooks))
    )
    gradients = 2 * 4 * 1024 * 1024
    assert plain == alike
    # A batch of four rows, 16 KiB, and its like are gone by then.
    assert gradients // 2 - (1 << 16) <= halved - plain <= gradients // 2
    assert kept - plain >= gradients


def test_commands_that_only_tell_something_run(estimated: Callable[..., Estimate]) -> None:
    text = (
        "import subprocess\n"
        "assert subprocess.run('hostname', capture_output=True).stdout\n"
        "assert subprocess.check_output(['git', '--version']).startswith(b'git version')\n"
        "assert subprocess.check_output('uname -s', shell=True, text=True).strip()\n"
    )
    assert estimated(text + PLAIN + "main(0)\n").repeats


def test_a_shell_tells_of_no_gpus_by_its_exit_code(estimated: Callable[..., Estimate]) -> None:
    text = "import subprocess\nassert subprocess.run('rocm-smi -a', shell=True).returncode == 127\n"
    assert estimated(text + PLAIN + "main(0)\n").repeats


@pytest.mark.parametrize("command", ["lspci", "nvidia-smi", "no-such-command"])
def test_commands_of_gpus_are_not_installed(command: str, estimated: Callable[..., Estimate]) -> None:
    text = f"import subprocess\ntry:\n    subprocess.run([{command!r}], stdout=subprocess.PIPE)\n"
    text += "except FileNotFoundError as error:\n    assert error.filename\nelse:\n    raise AssertionError\n"
    assert estimated(text + PLAIN + "main(0)\n").repeats


@pytest.mark.parametrize(
    "command",
    [
        "['git', 'log', '--output=log.txt']",
        "['git', 'commit']",
        "'uname -s > log.txt', shell=True",
        "['true']",
        "['hostname', 'another']",
        "'eval true', shell=True",
        "['uname'], executable='/bin/true'",
    ],
)
def test_commands_that_do_something_are_refused(command: str, estimated: Callable[..., Estimate]) -> None:
    text = f"import subprocess\ntry:\n    subprocess.run({command})\nexcept PermissionError:\n    pass\n"
    assert estimated(text + "else:\n    raise AssertionError\n" + PLAIN + "main(0)\n").repeats


def test_a_program_finds_a_gpu_that_exists(estimated: Callable[..., Estimate]) -> None:
    text = "import torch\nassert 'H100' in torch.cuda.get_device_name(0)\n"
    assert estimated(text + PLAIN + "main(0)\n").repeats


TENSOR_PARALLEL = """
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module
distributed.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2,))
model = parallelize_module(
    nn.Linear(64, 4096, bias=False).cuda(), mesh, ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000):
    with loss_parallel():
        labels = torch.randint(4096, (512,)).cuda()
        loss = nn.functional.cross_entropy(model(torch.randn(512, 64, device="cuda")), labels)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_loss_is_computed_in_shards(estimated: Callable[..., Estimate]) -> None:
    shared = estimated(TENSOR_PARALLEL, parallel=Parallel(data="ddp", replicas=2))
    whole = estimated(TENSOR_PARALLEL.replace("(2,)", "(1,)"), parallel=Parallel(data="ddp", replicas=1))
    # Logits, what is left of them for backward and their gradient are cut in half, and nothing is made whole of them.
    half = 512 * 2048 * 4
    assert whole.peak.requested_bytes - shared.peak.requested_bytes > 3 * half


def test_an_object_of_another_rank_is_nobodys(estimated: Callable[..., Estimate]) -> None:
    text = PLAIN + "from torch import distributed\ndistributed.init_process_group('nccl')\n"
    text += "distributed.recv_object_list([None], src=1)\nmain(0)\n"
    with pytest.raises(EstimateError, match="receives an object from another rank"):
        estimated(text, parallel=Parallel(data="ddp", replicas=2))
