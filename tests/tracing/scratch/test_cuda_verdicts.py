"""Every functional op whose CUDA kernel is not the CPU's has a verdict: a rule, a named gap, or nothing to take."""

import functools
from pathlib import Path

import pytest
import torch
import torchgen
from torchgen.gen import parse_native_yaml
from torchgen.model import DispatchKey, SchemaKind

from memplan.tracing.scratch.cuda_table import CUDA_RULES, NOT_COVERED
from tests.tracing.scratch.cuda_plain import PLAIN, is_plain

READ_AGAINST = "2.13"
"""The release whose operators the tables were read against; others know more or fewer."""

if not torch.__version__.startswith(READ_AGAINST):
    pytest.skip(f"the verdicts are on the operators of torch {READ_AGAINST}", allow_module_level=True)


@functools.cache
def own_kernels():
    """Name and overload of functional and in-place ops with a CUDA kernel that CPU does not share."""
    folder = Path(torchgen.__file__).parent / "packaged/ATen/native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    kernels = [parsed.backend_indices[key].get_kernel for key in (DispatchKey.CUDA, DispatchKey.CPU)]
    found = set()
    for function in parsed.native_functions:
        # A structured op's one kernel stands at its out variant and serves all.
        if function.structured_delegate is not None or (
            function.func.kind() is SchemaKind.out and not function.structured
        ):
            continue
        cuda, cpu = (kernel(function) for kernel in kernels)
        if cuda is not None and (cpu is None or cpu.kernel != cuda.kernel):
            name = function.func.name
            overload = "default" if function.structured else name.overload_name or "default"
            found.add((str(name.name), overload))
    return found


def verdicts(name, overload):
    ruled = {rule.split(".")[1] for rule in CUDA_RULES}
    gaps = {f"aten.{name}", f"aten.{name}.{overload}"} & set(NOT_COVERED)
    return {
        "rule": name in ruled and not gaps,
        "gap": bool(gaps),
        "plain": is_plain(name) and name not in ruled,
    }


def test_there_is_one_verdict_on_every_op():
    assert len(own_kernels()) > 400
    undecided = {op: verdicts(*op) for op in own_kernels() if sum(verdicts(*op).values()) != 1}
    assert undecided == {}


def test_nothing_is_declared_plain_that_has_no_kernel_of_its_own():
    assert PLAIN - {name for name, _ in own_kernels()} == set()


def test_no_op_is_declared_twice():
    assert len(NOT_COVERED) == len(set(NOT_COVERED))
    assert not PLAIN & {name.removeprefix("aten.") for name in NOT_COVERED}
