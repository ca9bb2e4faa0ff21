"""``--input``: parsing without torch, tensors with it."""

import contextlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import EstimateError, ExitCode, UsageError
from memplan.job.inputs import DTYPES, batch_of, parse_input
from memplan.job.spec import InputSpec


def test_every_dtype_is_torchs_and_has_its_size():
    for name, (kind, itemsize) in DTYPES.items():
        dtype = getattr(torch, name)
        assert isinstance(dtype, torch.dtype)
        assert dtype.itemsize == itemsize
        assert dtype.is_floating_point == (kind in {"float", "float8"})
        assert dtype.is_complex == (kind == "complex")


names = st.from_regex(r"[a-z_][a-z_0-9]*", fullmatch=True).filter(str.isidentifier)
dims = st.lists(st.one_of(st.integers(1, 10**12), st.sampled_from("BS")), max_size=5)


@given(names, st.sampled_from(sorted(DTYPES)), dims, st.sampled_from(["", " "]))
def test_what_is_written_is_read(name, dtype, dims, space):
    separator = f",{space}"
    text = f"{name}{space}={dtype}[{separator.join(map(str, dims))}]"
    assert parse_input(text) == InputSpec(name=name, dtype=dtype, dims=tuple(dims))


@pytest.mark.parametrize(
    ("text", "part", "column"),
    [
        ("x=float33[B,3]", "'float33'", 3),
        ("x=[B,3]", "''", 3),
        ("1x=float32[B]", "'1x'", 1),
        ("x=float32[B,-3]", "'-3'", 11),
        ("x=float32[B,0]", "'0'", 11),
        ("x=float32[B,T]", "'T'", 11),
        ("x=float32[B,,3]", "''", 11),
        ("x=float32[nan]", "'nan'", 11),
        ("x=float32[1e9]", "'1e9'", 11),
        ("x=float32[²]", "'²'", 11),
    ],
)
def test_errors_point_at_the_part(text, part, column):
    with pytest.raises(UsageError) as caught:
        parse_input(text)
    assert part in caught.value.what
    assert f"column {column}" in (caught.value.where or "")
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("text", ["", "x", "x=float32", "x=float32[B", "x float32[B]", "x=float32[B]]"])
def test_other_shapes_of_text_show_the_form(text):
    with pytest.raises(UsageError) as caught:
        parse_input(text)
    assert "NAME=dtype[dims]" in (caught.value.hint or "")


@given(st.text())
def test_any_text_is_an_input_or_a_usage_error(text):
    with contextlib.suppress(UsageError):
        assert parse_input(text).name.isidentifier()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_can_be_made(dtype):
    tensor = batch_of([parse_input(f"x={dtype}[B,S,3]")])(2, 5)["x"]
    assert tensor.shape == (2, 5, 3)
    assert tensor.dtype == getattr(torch, dtype)
    if not (tensor.is_floating_point() or tensor.is_complex()):
        assert 0 <= tensor.long().min() <= tensor.long().max() <= 1


def test_a_batch_holds_every_input():
    batch = batch_of([parse_input("ids=int64[B,S]"), parse_input("scale=float32[]")])(3, 7)
    assert {name: tuple(tensor.shape) for name, tensor in batch.items()} == {"ids": (3, 7), "scale": ()}


def test_sequence_dimension_needs_a_length():
    with pytest.raises(UsageError, match="dimension S") as caught:
        batch_of([parse_input("ids=int64[B,S]")])(3, None)
    assert "--seq-len" in (caught.value.hint or "")


def test_one_name_twice():
    with pytest.raises(UsageError, match="'x' twice"):
        batch_of([parse_input("x=int64[B]"), parse_input("x=int64[B]")])


def test_gigantic_input_is_an_error_and_no_overflow():
    with pytest.raises(EstimateError, match="address space"):
        batch_of([parse_input("x=float32[B,4000000000,4000000000]")])(10**9, None)
