"""Ops whose results or memory differ on CUDA though both devices have them: embedding bags, masks in attention, fp8."""

import pytest
import torch

from memplan.tracing.cuda.release import VARIABLE
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits
from memplan.tracing.semantics import semantics
from memplan.tracing.values import Values
from memplan.tracing.world import fake_world
from tests.tracing.cuda.tape import played

LONG, SINGLE = torch.int64, torch.float32
F = torch.nn.functional


@pytest.mark.parametrize(("mode", "maxima"), [("sum", (0,)), ("mean", (0,)), ("max", (3, 8))])
def test_bags_of_embeddings_know_the_bag_of_each_index(mode, maxima):
    with played() as tape:
        table = torch.randn(100, 8, device="cuda", requires_grad=True)
        indices = torch.arange(10, device="cuda")
        tape.clear()
        out = F.embedding_bag(indices, table, torch.tensor([0, 4, 7], device="cuda"), mode=mode)
        assert tape.row("_embedding_bag.default").results == (
            ((3, 8), SINGLE), ((10,), LONG), ((3,), LONG), (maxima, LONG),
        )  # fmt: skip
        out.sum().backward()
        assert tape.row("_embedding_bag_backward.default").results == (((100, 8), SINGLE),)


def recorded(attention, run):
    traits = DeviceTraits(kind="cuda")
    with fake_world(), semantics(traits, attention) as means:
        recorder = Recorder(traits, means.scratch_rules, means.place_rule, Values())
        means.ask_host(recorder.references.is_host)
        with recorder.watching():
            recorder.recording = True
            run()
    return recorder


def born(recorder, name):
    """Sizes that an op's own results were allocated with, one list for each time that it ran."""
    sizes = []
    for op in recorder.ops:
        if op.name == name:
            events = [event for event in recorder.ledger.events if event.op == op.index and event.action == "alloc"]
            entries = [recorder.ledger.entries[event.storage] for event in events]
            sizes.append([entry.nbytes for entry in entries if entry.role == "intermediate"])
    return sizes


def test_attentions_math_adds_its_mask_in_place():
    scores = 2 * 4 * 64 * 64 * 4

    def run():
        query = torch.randn(2, 4, 64, 32, device="cuda", requires_grad=True)
        mask = torch.randn(64, 64, device="cuda")
        F.scaled_dot_product_attention(query, query, query, attn_mask=mask)
        torch.randn(2, 4, 64, 64, device="cuda") + mask

    sums = born(recorded("math", run), "aten.add.Tensor")
    # The kernel's own addition takes nothing; one of the user's takes what its result takes.
    assert sums == [[], [scores]]


def test_float8_products_give_what_was_asked_for_and_use_the_thread_s_workspace(monkeypatch):
    monkeypatch.setenv(VARIABLE, "2.14.1")  # Later ones take it for each product.

    def run():
        a = torch.randn(32, 64, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(48, 64, device="cuda").to(torch.float8_e4m3fn).t()
        one = torch.ones((), device="cuda")
        torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)

    recorder = recorded("auto", run)
    assert born(recorder, "aten._scaled_mm.default") == [[32 * 48 * 2]]
    assert [entry.nbytes for entry in recorder.ledger.entries if entry.role == "workspace"] == [8_519_680]
    assert 32 * 64 in [size for sizes in born(recorder, "aten._to_copy.default") for size in sizes]


def test_float8_products_write_where_compiled_code_lets_them(monkeypatch):
    monkeypatch.setenv(VARIABLE, "2.14.1")

    def run():
        a = torch.randn(32, 64, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(48, 64, device="cuda").to(torch.float8_e4m3fn).t()
        one, out = torch.ones((), device="cuda"), torch.empty(32, 48, dtype=torch.bfloat16, device="cuda")
        assert torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, out=out) is out

    recorder = recorded("auto", run)
    assert born(recorder, "aten._scaled_mm.out") == [[]]
    assert [entry.nbytes for entry in recorder.ledger.entries if entry.role == "workspace"] == [8_519_680]
