"""Device or host: what code asked for, read off the calls that it makes."""

import threading

import pytest
import torch

from memplan.tracing.cuda import assumptions_of, cuda_semantics
from memplan.tracing.records import DeviceTraits
from tests.tracing.cuda.tape import played


def places(tape):
    return [place for row in tape.rows for place in row.places]


FACTORIES = [
    (lambda: torch.arange(3), "host"),
    (lambda: torch.tensor([1.0]), "host"),
    (lambda: torch.zeros(2, device=None), "host"),
    (lambda: torch.zeros(2, device="cpu"), "host"),
    (lambda: torch.zeros(2, device="cuda"), "device"),
    (lambda: torch.zeros(2, device="cuda:0"), "device"),
    (lambda: torch.zeros(2, device=0), "device"),
    (lambda: torch.zeros(2, device=torch.device("cuda")), "device"),
    (lambda: torch.tensor([1.0], device="cuda"), "device"),
    (lambda: torch.full((2,), 1.0, device="cuda"), "device"),
    (lambda: torch.empty_strided((2,), (1,), device="cuda"), "device"),
    (lambda: torch.as_tensor([1.0], device="cuda"), "device"),
    (lambda: torch.randn(2, device="cuda", generator=torch.Generator("cuda")), "device"),
    (lambda: torch.ops.aten.zeros([2]), "device"),
    (lambda: torch.zeros(2, device="meta"), "meta"),
    (lambda: torch.zeros(2, pin_memory=True), "pinned"),
]


@pytest.mark.parametrize(("make", "place"), FACTORIES)
def test_a_factory_lies_where_it_is_asked_to(make, place):
    with played() as tape:
        make()
        assert places(tape) == [place]


def test_what_is_pinned_lies_apart_from_other_host_memory():
    with played() as tape:
        host = torch.zeros(2)
        host.pin_memory()
        host.new_empty(2, pin_memory=True)
        torch.empty(2, device="cpu", pin_memory=True)
        assert places(tape) == ["host", "pinned", "pinned", "pinned"]


def test_what_takes_operands_lies_with_them():
    with played() as tape:
        host, device = torch.zeros(2), torch.zeros(2, device="cuda")
        tape.clear()
        host + 1
        device + 1
        torch.ones_like(host)
        torch.empty_like(device)
        device * torch.tensor(2.0)
        assert places(tape) == ["host", "device", "host", "device", "host", "device"]


MOVES = [
    (lambda h, d: h.cuda(), ["device"]),
    (lambda h, d: h.to("cuda"), ["device"]),
    (lambda h, d: h.to(device="cuda", non_blocking=True), ["device"]),
    (lambda h, d: h.to("cuda", torch.float16), ["device"]),
    (lambda h, d: h.to(d), ["device"]),
    (lambda h, d: h.to(d.device), ["device"]),
    (lambda h, d: torch.as_tensor(h, device="cuda"), ["device"]),
    (lambda h, d: h.pin_memory(), ["pinned"]),
    (lambda h, d: h.to(torch.float16), ["host"]),
    (lambda h, d: h.cpu(), []),
    (lambda h, d: d.cuda(), []),
    (lambda h, d: d.to("cuda"), []),
    (lambda h, d: d.to("cuda", copy=True), ["device"]),
    (lambda h, d: d.to(torch.float16), ["device"]),
    (lambda h, d: d.half(), ["device"]),
    (lambda h, d: d.cpu(), ["host"]),
    (lambda h, d: d.to("cpu"), ["host"]),
    (lambda h, d: d.to("cpu", torch.float16), ["host"]),
    (lambda h, d: d.to(h), ["host"]),
    (lambda h, d: d.detach().cpu().float(), ["host"]),
]


@pytest.mark.parametrize(("move", "expected"), MOVES)
def test_a_move_copies_only_between_places(move, expected):
    with played() as tape:
        host, device = torch.zeros(2), torch.zeros(2, device="cuda")
        tape.clear()
        moved = move(host, device)
        assert places(tape) == expected
        if not expected:
            assert moved is host or moved is device


def test_a_host_copy_does_not_hold_the_device_storage():
    with played():
        device = torch.zeros(2, device="cuda")
        assert device.cpu().untyped_storage()._cdata != device.untyped_storage()._cdata


def test_a_default_device_counts_as_asked_for(monkeypatch):
    # Torch 2.6 cannot tell its default device any more once one was set and taken back; other tests ask for it.
    monkeypatch.setattr(torch, "_GLOBAL_DEVICE_CONTEXT", threading.local())
    with played() as tape:
        with torch.device("cuda"):
            torch.zeros(2)
            torch.nn.Linear(2, 2, bias=False)
            with torch.device("cpu"):
                torch.zeros(2)
        torch.set_default_device("cuda")
        torch.zeros(2)
        torch.set_default_device(None)
        torch.zeros(2)
        assert places(tape) == ["device", "device", "host", "device", "host"]


def test_modules_move_with_their_parameters():
    with played() as tape:
        layer = torch.nn.Linear(2, 3)
        weight = layer.weight
        assert not weight.is_cuda
        tape.clear()
        layer.to("cuda")
        assert places(tape) == ["device", "device"]
        assert layer.weight is weight
        assert weight.is_cuda
        tape.clear()
        layer.cuda()
        assert places(tape) == []


def test_questions_about_a_tensor_are_answered_for_its_place():
    with played():
        host, device = torch.zeros(2), torch.zeros(2, device="cuda")
        assert (host.is_cuda, host.is_cpu, host.get_device()) == (False, True, -1)
        assert (device.is_cuda, device.is_cpu, device.get_device()) == (True, False, 0)


def test_zeros_that_autograd_makes_are_on_the_device():
    with played() as tape:
        x = torch.randn(4, 4, device="cuda", requires_grad=True)
        tape.clear()
        x[0].sum().backward()
        assert set(places(tape)) == {"device"}


def test_code_that_asks_for_a_gpu_finds_the_one_that_is_played():
    with cuda_semantics(DeviceTraits(kind="cuda", capability=(9, 0), sm_count=132)):
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 1
        assert torch.cuda.get_device_capability() == (9, 0)
        properties = torch.cuda.get_device_properties(0)
        assert (properties.major, properties.minor, properties.multi_processor_count) == (9, 0, 132)
        assert torch.cuda.is_bf16_supported()
        assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 0
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.set_device(0)
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
            end.record()
        assert begin.elapsed_time(end) == 0
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())


def test_recomputed_blocks_are_read_in_backward_as_in_forward():
    def block(x):
        positions, scale = torch.arange(4), torch.ones(4, device="cuda")
        assert x.is_cuda
        return (x * scale * positions.cuda()).relu().exp()

    with played() as tape:
        x = torch.randn(4, 4, device="cuda", requires_grad=True)
        tape.clear()
        out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        forward = [(row.op, row.places) for row in tape.rows if row.op in {"aten.arange.default", "aten.ones.default"}]
        tape.clear()
        out.sum().backward()
        backward = [(row.op, row.places) for row in tape.rows if row.op in {"aten.arange.default", "aten.ones.default"}]
        assert forward == backward == [("aten.arange.default", ("host",)), ("aten.ones.default", ("device",))]


def test_backward_takes_all_its_arguments():
    with played():
        x = torch.randn(4, device="cuda", requires_grad=True)
        y = torch.randn(4, device="cuda", requires_grad=True)
        out = x * y
        out.backward(torch.ones(4, device="cuda"), retain_graph=True, inputs=[x])
        assert x.grad is not None
        assert y.grad is None
        out.backward(gradient=torch.ones(4, device="cuda"))
        assert y.grad is not None


def test_a_model_built_on_meta_is_made_on_the_device():
    with played() as tape:
        with torch.device("meta"):
            layer = torch.nn.Linear(2, 3)
        tape.clear()
        made = torch.empty_like(layer.weight, device="cuda")
        assert places(tape) == ["device"]
        assert made.device == torch.device("cuda", 0)
        assert layer.weight.to("meta").device.type == "meta"


def test_scripts_that_profile_memory_run():
    with cuda_semantics(DeviceTraits(kind="cuda")):
        torch.cuda.memory._record_memory_history(max_entries=10)
        torch.cuda.memory._dump_snapshot("never-written.pickle")
        assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
        torch.cuda.nvtx.range_push("step")
        torch.cuda.nvtx.range_pop()


def test_assumptions_name_only_what_ran():
    assert assumptions_of(["aten.mm.default"]) == ()
    assert len(assumptions_of(["aten.mm.default", "aten._cudnn_rnn.default"])) == 1


def test_a_turing_gpu_only_emulates_bf16():
    with cuda_semantics(DeviceTraits(kind="cuda", capability=(7, 5))):
        assert torch.cuda.is_bf16_supported()
        assert not torch.cuda.is_bf16_supported(including_emulation=False)


@pytest.mark.parametrize(
    "move",
    [
        lambda model: model.cuda(),
        lambda model: model.to("cuda"),
        lambda model: model.to(device="cuda"),
        lambda model: model.to(device=torch.device("cuda"), dtype=torch.float16),
    ],
)
def test_a_module_moves_however_it_is_told(move):
    with played() as tape:
        model = torch.nn.Linear(2, 2)
        tape.clear()
        move(model)
        assert places(tape)[-2:] == ["device", "device"]
