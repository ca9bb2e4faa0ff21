"""Pipelines: the pieces make up the whole, and keep as many micro-batches as their schedule says."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.parallel import parse_parallel
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.tracing.sharding.chain import find_chain
from memplan.tracing.sharding.pipeline import balanced_cuts, running, split
from memplan.units import format_bytes
from tests.support.ranks import real_ranks
from tests.tracing.jobs import source
from tests.tracing.sharding import real_layers
from tests.tracing.sharding.toy import (
    BLOCKS,
    Decoder,
    loss,
    most_alive,
    needs_recent_torch,
    parameter_bytes,
    traced,
    words,
)

pytestmark = needs_recent_torch

SILU = "aten.silu.default"
"""Runs once in every block, and what it reads and returns lives until the block's backward."""


def whole(model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return running(lambda called, given: called(given), loss, torch.enable_grad)(model, batch)


def stages(model: nn.Module, text: str, batch: torch.Tensor) -> list[nn.Module]:
    parallel = parse_parallel(text)
    chain = find_chain(model, lambda: whole(model, batch))
    parts = [split(model, chain, parallel, rank)[0] for rank in range(parallel.pipeline)]
    found = [stage for part in parts for stage in (part if isinstance(part, nn.ModuleList) else [part])]
    for stage in found:
        stage.run = whole
    return sorted(found, key=lambda stage: stage.index)


def test_the_stages_one_after_another_compute_what_the_model_does():
    model, batch = Decoder(), words()
    for text in ("pp=2", "pp=3", "pp=4", "pp=2,schedule=interleaved"):
        first, *middle, last = stages(model, text, batch)
        hidden = first(batch=batch)
        for stage in middle:
            hidden = stage(hidden, batch=batch)
        found, logits = last(hidden, batch=batch)
        assert torch.equal(logits, model(batch))
        assert torch.equal(found, loss(model(batch), batch))


def test_a_plain_sequence_of_layers_is_a_chain():
    layers, given = nn.Sequential(*(each for _ in range(3) for each in (nn.Linear(4, 4), nn.Tanh()))), torch.randn(2, 4)

    def run(model, batch):
        output = model(batch)
        return output.sum(), output

    chain = find_chain(layers, lambda: run(layers, given))
    first, last = (split(layers, chain, parse_parallel("pp=2"), rank)[0] for rank in range(2))
    first.run = last.run = run
    assert torch.equal(last(first(batch=given), batch=given)[1], layers(given))


def test_gradients_flow_back_through_the_stages():
    model, batch = Decoder(), words()
    first, last = stages(model, "pp=2", batch)
    last(first(batch=batch), batch=batch)[0].backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    loss(model(batch), batch).backward()
    assert all(torch.equal(one, other.grad) for one, other in zip(found, model.parameters(), strict=True))


def test_a_stage_asks_for_what_the_one_before_sends():
    found = stages(Decoder(), "pp=4", words())
    assert found[0].received is None
    assert [stage.received for stage in found[1:]] == [stage.sent[0] for stage in found[:-1]]


def test_a_stage_has_no_parameters_of_the_others():
    model = Decoder()
    found = stages(model, "pp=4", words())
    names = [{id(parameter) for parameter in stage.parameters()} for stage in found]
    assert sum(len(each) for each in names) == len(set().union(*names)) == len(list(model.parameters()))


def test_transformers_models_are_cut_with_their_own_forward():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2, vocab_size=32
    )
    model, batch = transformers.LlamaForCausalLM(config).eval(), torch.randint(0, 32, (2, 8))

    def run(called, given):
        output = called(input_ids=given, labels=given, use_cache=False)
        return output.loss, output.logits

    chain = find_chain(model, lambda: run(model, batch))
    pieces = [split(model, chain, parse_parallel("pp=2"), rank)[0] for rank in range(2)]
    for piece in pieces:
        piece.run = run
    found, logits = pieces[1](pieces[0](batch=batch), batch=batch)
    assert torch.equal(found, run(model, batch)[0])
    assert torch.equal(logits, run(model, batch)[1])


@given(st.lists(st.integers(0, 50), min_size=3, max_size=20), st.data())
def test_pieces_are_never_empty_and_cover_the_chain(weights, data):
    blocks = len(weights) - 2
    count = data.draw(st.integers(1, blocks))
    cuts = (0, *balanced_cuts(weights, count), blocks)
    assert len(cuts) == count + 1
    assert all(one < other for one, other in pairwise(cuts))


@given(st.integers(1, 9), st.integers(1, 9))
def test_equal_blocks_are_shared_equally(each, count):
    cuts = (0, *balanced_cuts([0, *[7] * (each * count), 0], count), each * count)
    assert {other - one for one, other in pairwise(cuts)} == {each}


def test_parameters_of_all_ranks_are_those_of_the_model():
    interleaved = [parameter_bytes(traced("pp=2,schedule=interleaved", rank)) for rank in range(2)]
    assert sum(interleaved) == parameter_bytes(traced("none"))


@pytest.mark.parametrize(("schedule", "micro_batches"), [("gpipe", 5), ("1f1b", 6)])
def test_micro_batches_in_flight(schedule, micro_batches):
    for rank in (0, 1, 3):
        trace = traced(f"pp=4,schedule={schedule},micro={micro_batches}", rank)
        in_flight = micro_batches if schedule == "gpipe" else min(4 - rank, micro_batches)
        assert most_alive(trace, SILU) == in_flight * BLOCKS / 4


@pytest.mark.slow
def test_real_ranks_keep_as_many(tmp_path):
    """Two processes run torch's schedules on pieces of a model cut by hand, and count what waits for backward."""
    given = source(real_layers.Layers, real_layers.batch, loss=real_layers.loss)
    for rank, real in enumerate(real_ranks(real_layers.pipeline, 2, tmp_path)):
        for schedule, most in real.items():
            trace = traced(f"pp=2,schedule={schedule},micro={real_layers.MICRO_BATCHES}", rank, given)
            assert most_alive(trace, "aten.tanh.default") == most


def test_hidden_states_of_every_micro_batch_have_a_buffer_to_arrive_in():
    received = traced("pp=2,micro=3", 1).storages
    hidden = [each for each in received if each.nbytes == words().numel() * 32 * 4 and each.role == "intermediate"]
    assert len(hidden) >= 3


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, hidden, first):
        return self.mix(hidden) + first


class WithSkips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.begin, self.layers = nn.Linear(4, 4), nn.ModuleList(Pairs() for _ in range(4))

    def forward(self, given):
        first = hidden = self.begin(given)
        for layer in self.layers:
            hidden = layer(hidden, first)
        return hidden.sum()


@pytest.mark.parametrize(
    ("parallel", "model", "batch", "said"),
    [
        ("pp=2", WithSkips, lambda size: torch.ones(size, 4), "takes 2 tensors that require gradients"),
        ("pp=2", lambda: nn.Linear(4, 1), lambda size: torch.ones(size, 4), "no repeated blocks"),
        ("pp=5", Decoder, words, "5 pipeline stages for 4 blocks"),
        ("pp=4,micro=3", Decoder, words, "microbatches"),
    ],
)
def test_what_is_no_chain_is_refused(parallel, model, batch, said):
    with pytest.raises(UsageError, match=said):
        traced(parallel, given=source(model, batch, loss=lambda output, _: output.float().mean()))


def test_a_parallelize_of_the_users_own_makes_no_stages():
    given = source(Decoder, words, loss=loss, parallelize=lambda model, mesh: model)
    with pytest.raises(UsageError, match="cannot make pipeline stages"):
        traced("pp=2", given=given)


def test_a_train_step_of_the_users_own_is_no_pipeline():
    given = source(Decoder, words, train_step=lambda model, optimizer, batch: None)
    with pytest.raises(UsageError, match="own training loop"):
        traced("pp=2", given=given)


def test_tensor_parallel_ranks_share_each_stage():
    stage = parameter_bytes(traced("pp=2"))
    shared = parameter_bytes(traced("tp=2,pp=2"))
    assert stage / 2 < shared < stage


def test_fully_sharded_stages_hold_their_share():
    assert parameter_bytes(traced("fsdp=2,pp=2")) == parameter_bytes(traced("pp=2")) / 2


CHAIN = """
import torch
from torch import nn


def model():
    return nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(4)), nn.Linear(512, 8000))


def batch(batch_size):
    return torch.randn(batch_size, 512)


def loss(output, batch):
    return output.square().mean()
"""


def test_an_estimate_says_what_every_stage_needs(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(CHAIN)
    target = FileTarget(path=tmp_path / "model.py")
    spec = JobSpec(target=target, parallel=parse_parallel("pp=2"), batch_size=2)
    [answer] = estimate_here(spec, [load_profile("h100-80g")], advice=False)
    [said] = [each for each in answer.assumptions if "ranks that differ" in each]
    assert said.partition("stages need ")[2].count("iB") == 2
    assert format_bytes(answer.peak.device_bytes) in said
