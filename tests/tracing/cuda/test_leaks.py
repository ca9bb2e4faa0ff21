"""After the context torch is what it was: dispatcher, modules, tables, modes, autocast state, results."""

import sys

import pytest
import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import _get_current_function_mode_stack

from memplan.tracing.cuda import cuda_semantics
from memplan.tracing.records import DeviceTraits
from tests.tracing.cuda.tape import played

MODULES = (
    "torch",
    "torch.cuda",
    "torch.autograd",
    "torch.accelerator",
    "torch.utils._foreach_utils",
    "torch.amp.autocast_mode",
)


def dispatcher():
    """What the dispatcher would call for every aten op and key that this package touches."""
    ops = [schema.name + (f".{schema.overload_name}" if schema.overload_name else "") for schema in schemas()]
    return {op: torch._C._dispatch_dump_table(op) for op in ops}


def schemas():
    known = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    return [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::") and s.name in known]


def python_state():
    optimizers = [name for name in sys.modules if name.startswith("torch.optim.")]
    attributes = {
        (name, attribute): id(value)
        for name in (*MODULES, *optimizers)
        if name in sys.modules
        for attribute, value in vars(sys.modules[name]).items()
        if callable(value)
    }
    return {
        "attributes": attributes,
        "types": [list(sys.modules["torch.optim.optimizer"]._foreach_supported_types)],
        "rules": dict(fake_impls.op_implementations_dict),
        "metas": dict(torch._decomp.meta_table),
        "modes": len(_get_current_function_mode_stack()),
        "order": torch._C._get_sdp_priority_order(),
        "autocast": [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")],
        "libraries": set(torch.library._impls),
    }


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_before(fails):
    before = dispatcher(), python_state()
    try:
        with cuda_semantics(DeviceTraits(kind="cuda", capability=(9, 0))):
            assert dispatcher() != before[0]
            assert python_state() != before[1]
            assert not fails or 1 / 0
    except ZeroDivisionError:
        assert fails
    assert dispatcher() == before[0]
    assert python_state() == before[1]


def test_fake_results_of_the_two_worlds_do_not_mix():
    def statistics():
        with FakeTensorMode():
            return torch.ops.aten.native_layer_norm(torch.empty(2, 8, dtype=torch.bfloat16), [8], None, None, 1e-5)[
                1
            ].dtype

    outside = statistics()
    with cuda_semantics(DeviceTraits(kind="cuda")):
        assert statistics() == torch.float32
    assert statistics() == outside


def test_contexts_can_follow_one_another():
    for capability in ((8, 0), (9, 0)):
        with played(capability) as tape:
            x = torch.randn(4, 4, device="cuda")
            torch.nn.functional.dropout(x, 0.5)
            assert "native_dropout" in tape.ops
