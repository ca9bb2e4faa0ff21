"""Calls of ops that torch's operator database has no samples of: optimizers, sparse tensors' parts, and a few more."""

# ruff: noqa: SLF001 - ops are called as a trace meets them, many of which have private names

from collections.abc import Callable, Iterator
from typing import Any

import torch
from cpu_ops import Arguments, Sample

aten = torch.ops.aten
SIDE = 12


def samples(dtype: torch.dtype) -> Iterator[Sample]:
    """The calls in one type; those that have none of it fail and count for nothing."""
    for name, call in {**OPERATIONS, **_optimizers()}.items():

        def run(arguments: Arguments, made: Callable[[torch.Tensor], Any] = call) -> Any:
            return made(arguments[0])

        yield Sample(name, 0, run, (_operand(dtype), (), {}), differentiable=False)


def _operand(dtype: torch.dtype) -> torch.Tensor:
    return (9 * torch.rand(SIDE, SIDE)).to(dtype)


def _optimizers() -> dict[str, Callable[[torch.Tensor], Any]]:
    """Two steps of each optimizer, one tensor at a time, over lists, and fused."""
    found: dict[str, Callable[[torch.Tensor], Any]] = {}
    for name in ("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop"):
        found |= _ways(name)
    return found | _ways("Rprop") | _ways("SGD", momentum=0.9) | _ways("Adam", amsgrad=True) | _ways("Muon")


def _ways(name: str, **options: Any) -> dict[str, Callable[[torch.Tensor], Any]]:
    def steps(way: dict[str, bool]) -> Callable[[torch.Tensor], Any]:
        def run(operand: torch.Tensor) -> None:
            weight = torch.nn.Parameter(operand.clone())
            optimizer = getattr(torch.optim, name)([weight], lr=0.1, weight_decay=0.1, **options, **way)
            for _ in range(2):
                weight.grad = operand.clone()
                optimizer.step()

        return run

    ways: dict[str, dict[str, bool]] = {"": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    return {f"{name} {way} {options}": steps(keywords) for way, keywords in ways.items()}


def _sparse(operand: torch.Tensor) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.arange(SIDE).repeat(2, 1), operand, (SIDE, SIDE, SIDE))


def _image(operand: torch.Tensor, dims: int) -> torch.Tensor:
    return operand.flatten()[: 2**dims * 6].reshape(2, 3, *[2] * dims)


def _images_backward(operand: torch.Tensor) -> None:
    """Gradients of every interpolation, single and double the size."""
    for dims, mode in (
        *((dims, mode) for mode in ("nearest", "nearest-exact") for dims in (1, 2, 3)),
        *((1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear")),
    ):
        source = _image(operand, dims).clone().requires_grad_()
        torch.nn.functional.interpolate(source, scale_factor=4, mode=mode).sum().backward()


OPERATIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "parts of sparse tensors": lambda each: [
        part(_sparse(each)) for part in (aten._indices, aten._values, aten._nnz, aten.is_coalesced, aten.sparse_dim)
    ],
    "sparse tensors": lambda each: aten._coalesced_(_sparse(each), False),
    "dense dimensions": lambda each: aten.dense_dim(_sparse(each)),
    "images backward": _images_backward,
    "nonzero": aten.nonzero,
    "repeat": lambda each: aten.repeat(each, [3, 2]),
    "repeat in more dimensions": lambda each: aten.repeat(each, [2, 3, 2]),
    "pack": lambda each: aten._pack_padded_sequence(each.unsqueeze(-1), torch.tensor([12, 9, *[3] * 10]), False),
    "solve": lambda each: aten._linalg_solve_ex(each + SIDE * torch.eye(SIDE, dtype=each.dtype), each),
    "zeros without memory": lambda each: aten._efficientzerotensor([SIDE, SIDE], dtype=each.dtype),
    "scaling": lambda each: aten._amp_foreach_non_finite_check_and_unscale_([each], torch.zeros(()), torch.ones(())),
    "next scale": lambda _: aten._amp_update_scale_(
        torch.ones(()), torch.zeros((), dtype=torch.int32), torch.zeros(()), 2.0, 0.5, 10
    ),
    "assertion": lambda each: aten._assert_async(each.flatten()[0] == each.flatten()[0]),
    "small ops": lambda each: [
        aten.rand_like(each),
        each.clone().random_(),
        aten.lift(each),
        aten.lift_fresh_copy(each),
        aten.selu(each),
        aten._is_all_true(each > 1),
        aten._is_any_true(each > 1),
        aten.native_dropout(each, 0.5, True),
    ],
    "integers": lambda each: [aten.bincount(each.long().flatten()), aten.randperm(each.numel())],
    "long short-term memory": lambda each: torch.nn.LSTMCell(SIDE, SIDE, dtype=each.dtype)(each),
}
"""Name → what is called with a matrix."""
