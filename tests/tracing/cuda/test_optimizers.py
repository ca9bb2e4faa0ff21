"""Optimizers on fake parameters take the path that torch takes on CUDA."""

import pytest
import torch

from tests.tracing.cuda.tape import played


def step(tape, make, *, steps=1, **options):
    parameters = [torch.nn.Parameter(torch.empty(8, 8, device="cuda")) for _ in range(3)]
    for parameter in parameters:
        parameter.grad = torch.empty(8, 8, device="cuda")
    optimizer = make(parameters, **options)
    tape.clear()
    for _ in range(steps):
        optimizer.step()
    return parameters, optimizer


FOREACH = [
    torch.optim.AdamW,
    torch.optim.Adam,
    torch.optim.SGD,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.NAdam,
]


@pytest.mark.parametrize("make", FOREACH)
def test_the_default_is_foreach(make):
    with played() as tape:
        step(tape, make)
        assert any(op.startswith("_foreach_") for op in tape.ops)
        assert not {"addcdiv_", "addcmul_"} & set(tape.ops)


def test_a_step_of_adamw_makes_one_temporary_of_each_parameters_size():
    # torch/optim/adam.py _multi_tensor_adam: the square roots; states come with the first step.
    with played() as tape:
        step(tape, torch.optim.AdamW, steps=2)
        made = [result for row in tape.rows for result in row.results if result[0] == (8, 8)]
        assert len(made) == 2 * 3 + 2 * 3


@pytest.mark.parametrize(
    ("make", "op"),
    [(torch.optim.AdamW, "_fused_adamw_"), (torch.optim.Adam, "_fused_adam_"), (torch.optim.SGD, "_fused_sgd_")],
)
def test_fused_is_accepted_and_makes_no_temporaries(make, op):
    with played() as tape:
        step(tape, make, fused=True)
        assert op in tape.ops
        assert not [o for o in tape.ops if "sqrt" in o or "addcdiv" in o]


def test_foreach_false_is_the_loop():
    with played() as tape:
        step(tape, torch.optim.AdamW, foreach=False)
        assert tape.ops.count("addcdiv_") == 3


@pytest.mark.parametrize(
    ("options", "place"), [({}, "host"), ({"fused": True}, "device"), ({"capturable": True}, "device")]
)
def test_step_counts_lie_where_torch_puts_them(options, place):
    with played() as tape:
        _, optimizer = step(tape, torch.optim.AdamW, **options)
        counts = [state["step"] for state in optimizer.state.values()]
        assert len(counts) == 3
        assert {tape.is_host(count) for count in counts} == {place == "host"}
        moments = [state["exp_avg"] for state in optimizer.state.values()]
        assert not any(tape.is_host(moment) for moment in moments)


@pytest.mark.parametrize(
    ("clip", "op"),
    [
        (torch.nn.utils.clip_grad_norm_, "_foreach_norm.Scalar"),
        (torch.nn.utils.clip_grad_value_, "_foreach_clamp_max_.Scalar"),
    ],
)
def test_clipping_is_foreach(clip, op):
    with played() as tape:
        parameters, _ = step(tape, torch.optim.SGD)
        tape.clear()
        clip(parameters, 1.0)
        assert op in tape.ops
        assert "linalg_vector_norm" not in tape.ops[:1]
