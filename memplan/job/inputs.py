"""Inputs given on the command line: ``--input x=float32[B,3,224,224]``, read without torch and built with it."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from memplan.errors import EstimateError, UsageError
from memplan.job.spec import InputSpec

if TYPE_CHECKING:
    import torch

Kind = Literal["float", "float8", "integer", "bool", "complex"]

DTYPES: Mapping[str, tuple[Kind, int]] = {
    "float64": ("float", 8),
    "double": ("float", 8),
    "float32": ("float", 4),
    "float": ("float", 4),
    "float16": ("float", 2),
    "half": ("float", 2),
    "bfloat16": ("float", 2),
    "float8_e4m3fn": ("float8", 1),
    "float8_e5m2": ("float8", 1),
    "complex64": ("complex", 8),
    "complex128": ("complex", 16),
    "int64": ("integer", 8),
    "long": ("integer", 8),
    "int32": ("integer", 4),
    "int": ("integer", 4),
    "int16": ("integer", 2),
    "short": ("integer", 2),
    "int8": ("integer", 1),
    "uint8": ("integer", 1),
    "bool": ("bool", 1),
}
"""dtype names that ``--input`` takes → kind and bytes per element (torch docs: Tensor Attributes)."""

INTEGER_LIMIT = 2
"""Integer inputs are drawn below this: valid as a token of any vocabulary, a class of any classifier and a mask."""

_INPUT = re.compile(r"(?P<name>[^=]*)=(?P<dtype>[^\[]*)\[(?P<dims>[^\]]*)\]")
_FORM = "write NAME=dtype[dims], for example x=float32[B,3,224,224] (B batch size, S sequence length)"


def parse_input(text: str) -> InputSpec:
    """Read one ``--input``.

    Args:
        text: ``NAME=dtype[dims]``; each dimension is a positive integer, ``B`` (batch size) or ``S`` (sequence length).

    Returns:
        The input. ``dims`` may be empty: a tensor without dimensions.

    Raises:
        UsageError: Names the part that is wrong and the column at which it starts.
    """
    match = _INPUT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"'{text}' is not an input", where=f"--input {text}", hint=_FORM)
    name, dtype = match["name"].strip(), match["dtype"].strip()
    if not name.isidentifier():
        raise _wrong_part(match, "name", f"'{name}' is not a name that forward could take")
    if dtype not in DTYPES:
        raise _wrong_part(match, "dtype", f"'{dtype}' is not a torch dtype", hint="one of " + ", ".join(DTYPES))
    dims = match["dims"].split(",") if match["dims"].strip() else []
    return InputSpec(name=name, dtype=dtype, dims=tuple(_dim(match, dim.strip()) for dim in dims))


def batch_of(specs: Sequence[InputSpec]) -> "Callable[[int, int | None], dict[str, torch.Tensor]]":
    """Return a function that makes the given inputs of ``(batch_size, seq_len)``.

    Floating tensors are drawn from a normal distribution, integers below ``INTEGER_LIMIT``.

    Raises:
        UsageError: Two inputs have one name. When called: a dimension is ``S`` and there is no sequence length.
    """
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--input gives '{name}' twice")
    return lambda batch_size, seq_len: {spec.name: _tensor(spec, _shape(spec, batch_size, seq_len)) for spec in specs}


def _wrong_part(match: re.Match[str], part: str, what: str, hint: str = _FORM) -> UsageError:
    return UsageError(what, where=f"--input {match.string}, column {match.start(part) + 1}", hint=hint)


def _dim(match: re.Match[str], text: str) -> int | Literal["B", "S"]:
    symbols: dict[str, Literal["B", "S"]] = {"B": "B", "S": "S"}
    if text in symbols:
        return symbols[text]
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise _wrong_part(match, "dims", f"'{text}' is not a dimension", hint="a positive integer, B or S")
    return int(text)


def _shape(spec: InputSpec, batch_size: int, seq_len: int | None) -> tuple[int, ...]:
    if "S" in spec.dims and seq_len is None:
        raise UsageError(f"the input '{spec.name}' has a dimension S", hint="give the sequence length with --seq-len")
    known = {"B": batch_size, "S": seq_len or 0}
    shape = tuple(dim if isinstance(dim, int) else known[dim] for dim in spec.dims)
    if math.prod(shape) * DTYPES[spec.dtype][1] >= 2**63:
        raise EstimateError(f"the input '{spec.name}' of shape {list(shape)} is larger than any address space")
    return shape


def _tensor(spec: InputSpec, shape: tuple[int, ...]) -> "torch.Tensor":
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    match DTYPES[spec.dtype][0]:
        case "integer" | "bool":
            return torch.randint(0, INTEGER_LIMIT, shape, dtype=dtype)
        case "float8":
            # torch draws no 8-bit floats; the wider draw is freed before the first step.
            return torch.randn(shape).to(dtype)
        case "float" | "complex":
            return torch.randn(shape, dtype=dtype)
