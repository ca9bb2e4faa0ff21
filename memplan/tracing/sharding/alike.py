"""Ops on lists of DTensors, whose sharding torch works out element by element, worked out once for all that are alike.

An optimizer steps a thousand parameters in one such op. Torch looks at all of them for each of them
(torch/distributed/tensor/_sharding_prop.py ``_propagate_use_strided_shard_flag``), though a model has a dozen shapes.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

from memplan.seam.distributed import OpSchema, OutputSharding, ShardingPropagator
from memplan.seam.patches.sharding import PROPAGATE_SHARDING
from memplan.seam.replace import Replacement, attribute

_ELEMENTWISE = ("aten::_foreach_", "aten::_amp_foreach_", "aten::_fused_")
"""Beginnings of the names of ops that treat every element of their lists alike and alone: the ones that torch itself
takes apart (torch/distributed/tensor/_ops/single_dim_strategy.py ``_expand_single_dim_strategy_to_mesh``)."""

Propagate = Callable[[ShardingPropagator, OpSchema], OutputSharding]


def shared_propagation() -> tuple[Replacement, ...]:
    """Let torch work out the sharding of a list's elements once for each kind of element."""
    original: Propagate = attribute(PROPAGATE_SHARDING.path)

    def propagate(propagator: ShardingPropagator, schema: OpSchema) -> OutputSharding:
        count = _count(schema)
        if count < 2:
            return original(propagator, schema)
        kinds, kind_of = _kinds(schema, count)
        few = _with_lists(schema, count, kinds)
        return _spread(original(propagator, few), schema, count, kind_of)

    return (Replacement(PROPAGATE_SHARDING.path, propagate),)


def _count(schema: OpSchema) -> int:
    """Elements in each list of an op on lists; 0 for any other op."""
    if not schema.op._schema.name.startswith(_ELEMENTWISE) or len(schema.op._schema.returns) > 1:
        return 0
    counts = {len(arg) for arg in schema.args_schema if isinstance(arg, list) and arg}
    return counts.pop() if len(counts) == 1 else 0


def _is_list(arg: object, count: int) -> TypeGuard[list[Any]]:
    return isinstance(arg, list) and len(arg) == count


def _kinds(schema: OpSchema, count: int) -> tuple[list[int], list[int]]:
    """First element of each kind, and the kind of each element, by what all lists have at its position."""
    first: dict[tuple[Any, ...], int] = {}
    columns = zip(*(arg for arg in schema.args_schema if _is_list(arg, count)), strict=True)
    kind_of = [first.setdefault(column, len(first)) for column in columns]
    # In order of appearance: torch takes the mesh of the first element for all of them.
    return [kind_of.index(kind) for kind in range(len(first))], kind_of


def _with_lists(schema: OpSchema, count: int, positions: list[int]) -> OpSchema:
    """The same op on lists with the elements at these positions."""
    args = [[arg[at] for at in positions] if _is_list(arg, count) else arg for arg in schema.args_schema]
    return OpSchema(schema.op, tuple(args), schema.kwargs_schema, schema_info=schema.schema_info)


def _spread(few: OutputSharding, schema: OpSchema, count: int, kind_of: list[int]) -> OutputSharding:
    """What was found for one of each kind, for every element."""
    if isinstance(few.output_spec, tuple | list):
        few.output_spec = tuple([few.output_spec[kind] for kind in kind_of])
    if few.redistribute_schema is not None:
        found = few.redistribute_schema
        pairs: Iterable[tuple[Any, Any]] = zip(schema.args_schema, found.args_schema, strict=True)
        args = [[to[kind] for kind in kind_of] if _is_list(arg, count) else to for arg, to in pairs]
        few.redistribute_schema = OpSchema(found.op, tuple(args), found.kwargs_schema, schema_info=found.schema_info)
    return few
