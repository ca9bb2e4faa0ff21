"""Rules take whatever torch's own samples of its operators bring: nothing fails, and what is taken is given back."""

import itertools

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from memplan.tracing import semantics as semantics_module
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_table import CUDA_RULES
from memplan.tracing.semantics import semantics
from memplan.tracing.values import Values
from memplan.tracing.world import fake_world

pytest.importorskip("expecttest", reason="torch's samples import it")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SAMPLES = 3
SLOW_TO_SAMPLE = ("linalg", "special", "_refs", "signal", "masked.", "sparse", "ops.nvprims")
"""Families without rules, or made of operators that other families have."""


def on_device(value):
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
    return made.requires_grad_(value.requires_grad)


def samples_of(op, dtype):
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        found = op.sample_inputs("cpu", dtype, requires_grad=dtype.is_floating_point)
        return list(itertools.islice(found, SAMPLES))


class Checked:
    """Every rule, watched."""

    def __init__(self):
        self.failures = {}
        self.ran = set()
        self.rules = {name: self._watched(name, rule) for name, rule in CUDA_RULES.items()}

    def _watched(self, name, rule):
        def watched(call):
            self.ran.add(name)
            try:
                script = rule(call)
            except Exception as error:  # noqa: BLE001 (any error at all is a finding)
                self.failures[name] = repr(error), call.args, call.kwargs
                return None
            held = set()
            for line in () if script is None else (*script.before, *script.after):
                if line.action == "keep":
                    continue
                possible = line.nbytes >= 0 and (line.most is None or line.nbytes <= line.most)
                if not possible or (line.key in held) != (line.action == "free"):
                    self.failures[name] = line, script
                held ^= {line.key}
            return script

        return watched


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_rules_take_what_operators_take(dtype, monkeypatch):
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 (takes seconds)

    checked = Checked()
    monkeypatch.setattr(semantics_module, "CUDA_RULES", checked.rules)
    traits = DeviceTraits(kind="cuda")
    ran = 0
    with fake_world(), semantics(traits, "auto") as means:
        recorder = Recorder(traits, means.scratch_rules, means.place_rule, Values())
        means.ask_host(recorder.references.is_host)
        with recorder.watching():
            for op in op_db:
                if dtype not in op.supported_dtypes("cpu") or op.name.startswith(SLOW_TO_SAMPLE):
                    continue
                recorder.recording = False
                try:
                    samples = samples_of(op, dtype)
                except (RuntimeError, TypeError, AssertionError, NotImplementedError):
                    continue
                recorder.recording = True
                for sample in samples:
                    try:
                        source, args, kwargs = tree_map(on_device, (sample.input, sample.args, sample.kwargs))
                        result = op(source, *args, **kwargs)
                        if isinstance(result, torch.Tensor) and result.requires_grad:
                            result.sum().backward()
                    except Exception:  # noqa: BLE001 (fake tensors cannot run every sample; rules are watched)
                        continue
                    ran += 1
    assert checked.failures == {}
    assert ran > 150
    assert len(checked.ran) > 20
