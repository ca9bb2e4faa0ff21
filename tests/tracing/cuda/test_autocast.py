"""Autocast: the lists against torch's own header and dispatcher, the casts against WrapFunction_ and cached_cast."""

import re
import weakref
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memplan.tracing.cuda import autocast_lists as lists
from memplan.tracing.cuda import cuda_semantics
from memplan.tracing.records import DeviceTraits
from memplan.tracing.world import fake_world
from tests.tracing.cuda.tape import played

BRAIN, HALF, SINGLE = torch.bfloat16, torch.float16, torch.float32
F = torch.nn.functional

OF_OTHER_FILES = {"cudnn_convolution", "cudnn_convolution_transpose", "binary_cross_entropy"}
"""autocast_mode.cpp registers these itself, not through the header's lists."""

WITHIN_RNN = {"_cudnn_rnn"}
"""CUDA builds register its cast in cudnn/RNN.cpp; memplan.tracing.cuda.rnn casts before it calls."""


def header_list(macro):
    header = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
    if not header.exists():
        pytest.skip("this torch has no headers")
    body = re.search(rf"#define {macro}\(_\)(.*?)(?:\n\n|\Z)", header.read_text(), re.DOTALL)
    assert body is not None
    entries = re.findall(r"_\(([\w]+)(?:,\s*(\w+))?\)", body[1].replace("\\\n", " "))
    return {f"{name}.{overload}" if overload else name for name, overload in entries}


@pytest.mark.parametrize(
    ("macro", "table"),
    [
        ("AT_FORALL_LOWER_PRECISION_FP", lists.LOWER_PRECISION),
        ("AT_FORALL_FP32", lists.FP32),
        ("AT_FORALL_FP32_SET_OPT_DTYPE", lists.FP32_SET_OPT_DTYPE),
        ("AT_FORALL_PROMOTE", lists.PROMOTE),
    ],
)
def test_the_table_names_every_op_of_the_installed_header(macro, table):
    assert header_list(macro) <= set(table)


def test_the_table_covers_all_that_the_dispatcher_autocasts_on_cuda():
    registered = set()
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        try:
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA"):
                registered.add(name.removeprefix("aten::"))
        except RuntimeError:
            continue
    tables = (lists.LOWER_PRECISION, lists.FP32, lists.FP32_SET_OPT_DTYPE, lists.PROMOTE, lists.BANNED)
    assert registered <= {name for table in tables for name in table} | set(lists.FP32_APPEND_DTYPE) | WITHIN_RNN
    assert registered >= OF_OTHER_FILES


def test_no_op_stands_in_two_lists():
    names = [*lists.LOWER_PRECISION, *lists.FP32, *lists.FP32_SET_OPT_DTYPE, *lists.FP32_APPEND_DTYPE]
    names += [*lists.PROMOTE, *lists.BANNED]
    assert len(names) == len(set(names))


# PyTorch's documentation, "CUDA Ops that can autocast to float16 / float32", and what CPU does otherwise.
RESULTS = [
    ("matmul", lambda x: x @ x, BRAIN),
    ("linear", lambda x: F.linear(x, x), BRAIN),
    ("bmm", lambda x: torch.bmm(x[None], x[None]), BRAIN),
    ("einsum", lambda x: torch.einsum("ij,jk->ik", x, x), BRAIN),
    ("exp", lambda x: (x @ x).exp(), SINGLE),
    ("pow", lambda x: (x @ x) ** 2, SINGLE),
    ("rsqrt", lambda x: (x @ x).rsqrt(), SINGLE),
    ("sum", lambda x: (x @ x).sum(), SINGLE),
    ("softmax", lambda x: F.softmax(x @ x, -1), SINGLE),
    ("layer_norm", lambda x: F.layer_norm(x @ x, (4,)), SINGLE),
    ("norm", lambda x: torch.norm(x @ x), SINGLE),
    ("norm of a dimension", lambda x: torch.norm(x @ x, dim=1), SINGLE),
    ("cumsum", lambda x: (x @ x).cumsum(0), SINGLE),
    ("mse_loss", lambda x: F.mse_loss(x @ x, x @ x), SINGLE),
    ("relu passes", lambda x: F.relu(x @ x), BRAIN),
    ("gelu passes (the CPU list has no say)", lambda x: F.gelu(x @ x), BRAIN),
    ("avg_pool passes, which CPU casts to fp32", lambda x: F.avg_pool1d((x @ x)[None], 2), BRAIN),
    ("addcmul promotes", lambda x: torch.addcmul(x, x @ x, x @ x), SINGLE),
    ("addcmul of low dtypes", lambda x: torch.addcmul(x @ x, x @ x, x @ x), BRAIN),
    ("double is left alone", lambda x: x.double() @ x.double(), torch.float64),
]


@pytest.mark.parametrize(("function", "dtype"), [row[1:] for row in RESULTS], ids=[row[0] for row in RESULTS])
def test_results_have_the_dtype_that_cuda_gives(function, dtype):
    with played():
        x = torch.randn(4, 4, device="cuda")
        with torch.autocast("cuda", dtype=BRAIN):
            assert function(x).dtype == dtype


def test_a_weight_is_cast_once_until_the_outermost_context_ends():
    with played() as tape:
        layer, x = torch.nn.Linear(4, 4, device="cuda"), torch.randn(2, 4, device="cuda")
        tape.clear()
        with torch.autocast("cuda", dtype=BRAIN):
            layer(x)
            with torch.autocast("cuda", dtype=BRAIN):
                layer(x)
            layer(x)
        # Twice three inputs: x is no leaf that requires a gradient, so it is cast every time.
        assert tape.ops.count("_to_copy") == 2 + 3
        tape.clear()
        with torch.autocast("cuda", dtype=BRAIN):
            layer(x)
        assert tape.ops.count("_to_copy") == 3


def test_casts_are_made_from_the_last_argument_to_the_first():
    with played() as tape:
        layer, x = torch.nn.Linear(4, 5, device="cuda"), torch.randn(2, 4, device="cuda")
        tape.clear()
        with torch.autocast("cuda", dtype=BRAIN):
            layer(x)
        shapes = [row.results[0][0] for row in tape.rows if row.op == "aten._to_copy.default"]
        assert shapes == [(5,), (5, 4), (2, 4)]


def test_casts_die_from_the_first_argument_to_the_last():
    class Deaths(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func is torch.ops.aten._to_copy.default:
                weakref.finalize(result.untyped_storage(), dead.append, tuple(result.shape)).atexit = False
            return result

    dead = []
    with fake_world(), cuda_semantics(DeviceTraits(kind="cuda")), torch.no_grad():
        x, y, z = (torch.randn(2, 2 + n, 3, device="cuda") for n in range(3))
        with Deaths(), torch.autocast("cuda", dtype=BRAIN):
            torch.baddbmm(torch.randn(2, 2, 4, device="cuda"), x, z.transpose(1, 2))
        assert dead == [(2, 2, 4), (2, 2, 3), (2, 3, 4)]
        dead.clear()
        with Deaths(), torch.autocast("cuda", dtype=BRAIN):
            torch.einsum("bij,bkj->bik", x, y)
        assert dead == [(2, 2, 3), (2, 3, 3)]


@pytest.mark.parametrize("reason", ["nothing", "inference_mode", "frozen", "view", "cache off"])
def test_a_weight_is_not_kept_under(reason):
    # autocast_mode.cpp cached_cast, can_try_cache; under no_grad alone it is kept.
    with played() as tape:
        weight = torch.nn.Parameter(torch.empty(4, 4, device="cuda"), requires_grad=reason != "frozen")
        operand = weight[:] if reason == "view" else weight
        grad = torch.inference_mode() if reason == "inference_mode" else torch.no_grad()
        tape.clear()
        with torch.autocast("cuda", dtype=BRAIN, cache_enabled=reason != "cache off"), grad:
            for _ in range(2):
                torch.mm(operand, operand)
        assert tape.ops.count("_to_copy") == (1 if reason == "nothing" else 4)


def test_a_switched_off_region_and_device_agnostic_code():
    with played() as tape:
        x = torch.randn(4, 4, device="cuda")
        with torch.autocast("cuda", dtype=BRAIN):
            with torch.autocast(device_type=x.device.type, enabled=False):
                assert (x @ x).dtype == SINGLE
            assert (x @ x).dtype == BRAIN
        with torch.autocast(x.device.type):
            assert (x @ x).dtype == HALF
        assert (x @ x).dtype == SINGLE
        assert "mm" in tape.ops


@pytest.mark.filterwarnings("ignore:.*torch.cuda.amp.*:FutureWarning")
def test_every_way_to_write_autocast_works_and_answers():
    with played():
        x = torch.randn(4, 4, device="cuda")
        for context in (torch.autocast("cuda"), torch.amp.autocast("cuda"), torch.cuda.amp.autocast()):
            assert not torch.is_autocast_enabled()
            with context:
                assert torch.is_autocast_enabled()
                assert torch.is_autocast_enabled("cuda")
                assert torch.get_autocast_dtype("cuda") == HALF
                assert (x @ x).dtype == HALF


def test_checkpointed_blocks_recompute_under_the_same_autocast():
    with played() as tape:
        block = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 4)).cuda()
        x = torch.randn(2, 4, device="cuda", requires_grad=True)
        with torch.autocast("cuda", dtype=BRAIN):
            out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        tape.clear()
        out.sum().backward()
        # Recomputation stops as soon as the last saved tensor is there, before the second product.
        assert tape.row("addmm.default").results == (((2, 5), BRAIN),)


def test_binary_cross_entropy_is_refused():
    with played():
        x = torch.rand(4, device="cuda")
        with torch.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x, x)
