"""Sharding of ops on lists, worked out once for each kind of element, is what torch works out for every element."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.distributed.tensor._sharding_prop import ShardingPropagator

from memplan.job.parallel import parse_parallel
from memplan.seam.patches.sharding import PROPAGATE_SHARDING
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.sharding.alike import shared_propagation
from memplan.tracing.sharding.process_group import process_group
from tests.tracing.sharding.toy import needs_recent_torch

pytestmark = needs_recent_torch
Kind = tuple[tuple[int, ...], Placement, Placement, float]
"""Global shape of both tensors of an element, their placements, and its number."""
Ops = Callable[[list[DTensor], list[DTensor], list[float]], Any]
PROPAGATE = PROPAGATE_SHARDING.name


def fused(parameters: list[DTensor], gradients: list[DTensor], _: list[float]) -> None:
    whole = [torch.zeros((), device="meta") for _ in parameters]
    steps = [DTensor.from_local(each, parameters[0].device_mesh, [Replicate()], run_check=False) for each in whole]
    numbers = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
    torch._fused_adamw_(
        parameters, gradients, gradients, gradients, [], steps, **numbers, amsgrad=False, maximize=False
    )


OPS: dict[str, Ops] = {
    "add": lambda left, right, _: torch._foreach_add(left, right),
    "add in place": lambda left, right, _: torch._foreach_add_(left, right),
    "multiply by numbers": lambda left, _, numbers: torch._foreach_mul(left, numbers),
    "divide by a number": lambda left, *_: torch._foreach_div(left, 3.0),
    "multiply and add": lambda left, right, _: torch._foreach_addcmul(left, right, right, 0.5),
    "norms": lambda left, *_: torch._foreach_norm(left, 2.0),
    "fused update": fused,
}
placements = st.sampled_from((Shard(0), Replicate(), Partial()))
kinds = st.tuples(st.sampled_from(((8,), (4, 6), (3, 5), (1,))), placements, placements, st.sampled_from((1.0, 2.0)))


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    with process_group(parse_parallel("fsdp=4"), 1, "cpu") as made:
        yield made


@pytest.mark.parametrize("name", OPS)
@settings(deadline=None, max_examples=25)
@given(elements=st.lists(kinds, min_size=1, max_size=3).flatmap(lambda few: st.lists(st.sampled_from(few), min_size=2)))
def test_every_element_is_sharded_as_torch_shards_it(mesh: DeviceMesh, name: str, elements: list[Kind]) -> None:
    schema = schema_of(mesh, OPS[name], elements)
    propagator = DTensor._op_dispatcher.sharding_propagator
    expected = said(getattr(ShardingPropagator, PROPAGATE), propagator, schema)
    asked: list[OpSchema] = []
    with replaced((watched(asked),)), replaced(shared_propagation()):
        assert said(getattr(ShardingPropagator, PROPAGATE), propagator, schema) == expected
    assert len(asked[0].args_schema[0]) == len(set(zip(*lists_of(schema), strict=True)))


def test_two_hundred_parameters_of_one_kind_are_asked_about_once(mesh: DeviceMesh) -> None:
    schema = schema_of(mesh, OPS["add"], [((8,), Shard(0), Shard(0), 1.0)] * 200)
    asked: list[OpSchema] = []
    with replaced((watched(asked),)), replaced(shared_propagation()):
        found = getattr(ShardingPropagator, PROPAGATE)(DTensor._op_dispatcher.sharding_propagator, schema)
    assert [len(arg) for arg in lists_of(asked[0])] == [1, 1]
    assert len(found.output_spec) == 200


def schema_of(mesh: DeviceMesh, op: Ops, elements: list[Kind]) -> OpSchema:
    """What torch asks its sharding propagation about an op on lists of these elements."""
    left = [distributed(mesh, shape, placement) for shape, placement, _, _ in elements]
    right = [distributed(mesh, shape, placement) for shape, _, placement, _ in elements]
    asked: list[OpSchema] = []
    torch._C._clear_DTensor_sharding_propagator_cache()
    # Torch refuses to redistribute what an op writes, once it knows that it would have to.
    with replaced((watched(asked),)), suppress(RuntimeError):
        op(left, right, [number for *_, number in elements])
    return asked[0]


def distributed(mesh: DeviceMesh, shape: tuple[int, ...], placement: Placement) -> DTensor:
    whole = torch.empty(shape, device="meta")
    part = whole[2:3] if isinstance(placement, Shard) else whole
    return DTensor.from_local(part, mesh, [placement], run_check=False, shape=whole.shape, stride=whole.stride())


def watched(asked: list[OpSchema]) -> Replacement:
    original = getattr(ShardingPropagator, PROPAGATE)

    def propagate(propagator: ShardingPropagator, schema: OpSchema) -> OutputSharding:
        asked.append(schema)
        return original(propagator, schema)

    return Replacement(PROPAGATE_SHARDING.path, propagate)


def said(propagate: Any, propagator: ShardingPropagator, schema: OpSchema) -> tuple[Any, ...]:
    """All that torch reads of an answer; or how it refuses."""
    try:
        found = propagate(propagator, schema)
    except (RuntimeError, AssertionError) as error:
        return type(error), str(error)[:40]
    instead = found.redistribute_schema
    suggested = None if instead is None else (instead.op, instead.args_schema, instead.kwargs_schema)
    return found.output_spec, suggested, found.needs_redistribute, found.use_val_from_redistribute_schema


def lists_of(schema: OpSchema) -> list[list[Any]]:
    return [arg for arg in schema.args_schema if isinstance(arg, list) and arg]
