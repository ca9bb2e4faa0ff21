"""``--redact``: sizes stay, names go."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.measure.digest_records import Holder
from memplan.measure.records import Estimate, RecordedEstimate
from memplan.report.estimate.json import render as render_json
from memplan.report.estimate.text import render as render_text
from memplan.report.html.estimate import render
from memplan.report.redact import LEFT_OUT, Names, redacted
from tests.report.estimate_strategies import estimates
from tests.report.example_estimates import FITS, make_estimate

SECRET = "zebrafish"
NAMES = st.sampled_from(
    [
        SECRET, f"{SECRET}.layers.3.mlp", f"model.{SECRET}.0", f"/home/{SECRET}/model.py:41", f"src/{SECRET}.py:7",
        f"C:\\{SECRET}\\a.py:1", f"/x/site-packages/{SECRET}/net.py:3", f"{SECRET}_lib::op", f"lib.{SECRET}.default",
        f"{SECRET}.py", f"plans/{SECRET}.json",
    ]
)  # fmt: skip
SENTENCES = st.builds(
    str.format,
    st.sampled_from(
        ["custom op {} ({}:3)", "the module {}.x is never called", "'{}' has no rule", "sized by {}::op", "see /x/{}/y"]
    ),
    st.just(SECRET),
    st.just(SECRET),
)


@st.composite
def telling(draw: st.DrawFn) -> Estimate:
    """An estimate that names the secret wherever an estimate can name something."""
    estimate = draw(estimates())
    owners = tuple(dataclasses.replace(owner, module=draw(NAMES), source=draw(NAMES)) for owner in estimate.owners)
    peak = dataclasses.replace(estimate.peak, module=draw(NAMES), source=draw(NAMES), op=draw(NAMES))
    return dataclasses.replace(
        estimate,
        target=draw(NAMES),
        owners=owners,
        peak=peak,
        advice=(),
        options={"checkpoint": draw(NAMES), "lora": f"targets={SECRET}", "batch_size": "8", "precision": "bf16"},
        provenance={"batch_size": draw(NAMES), "model": f"{SECRET}: a net", "seq_len": "--seq-len", "mode": "default"},
        assumptions=tuple(draw(st.lists(SENTENCES, max_size=2))),
        not_modelled=tuple(draw(st.lists(SENTENCES, max_size=2))),
    )


@given(telling())
def test_no_report_says_a_name(estimate: Estimate) -> None:
    results = redacted([RecordedEstimate(estimate=estimate, history=None)])
    shown = [result.estimate for result in results]
    lines = render_text(shown, explain=True)
    for report in (render(results), render_json(shown), "\n".join(line.plain for line in lines)):
        assert SECRET not in report


@given(telling())
def test_no_figure_changes(estimate: Estimate) -> None:
    (result,) = redacted([RecordedEstimate(estimate=estimate, history=None)])
    after = result.estimate
    for name in ("breakdown", "gpu", "verdict", "parameters", "fragmentation", "timings", "flops_per_step"):
        assert getattr(after, name) == getattr(estimate, name)
    sizes = [(owner.category, owner.bytes) for owner in estimate.owners]
    assert [(owner.category, owner.bytes) for owner in after.owners] == sizes
    names = ("module", "source", "op")
    kept = dataclasses.replace(after.peak, **{name: getattr(estimate.peak, name) for name in names})
    assert kept == estimate.peak


def test_a_digest_loses_its_names_and_nothing_else(recorded: tuple[RecordedEstimate, ...]) -> None:
    (result,) = redacted(recorded[:1])
    before, after = recorded[0].digest, result.digest
    assert dataclasses.replace(after, holders=before.holders) == before
    assert {holder.category for holder in after.holders} == {holder.category for holder in before.holders}
    said = " ".join(f"{holder.module} {holder.source} {holder.name}" for holder in after.holders)
    assert not re.search("block|up|down|head|net.py", said)
    assert "aten." in said
    assert "weight" in said


def test_equal_names_stay_equal_and_blocks_stay_numbered() -> None:
    names = Names()
    first, second = names.module("model.layers.3.mlp"), names.module("model.layers.17.mlp")
    assert (first, second) == ("m1.m2.3.m3", "m1.m2.17.m3")
    assert names.source("a/model.py:41") == "file1:41"
    assert names.source("a/model.py:57") == "file1:57"
    assert names.source("b/model.py:41") == "file2:41"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("/usr/lib/python3/site-packages/torch/nn/modules/linear.py:134", "torch/nn/modules/linear.py:134"),
        ("/x/site-packages/acme_nets/model.py:3", "file1:3"),
        ("torch/model.py:3", "file1:3"),
        ("", ""),
    ],
)
def test_public_libraries_keep_their_names(source: str, shown: str) -> None:
    assert Names().source(source) == shown


def test_ops_of_pytorch_keep_their_names() -> None:
    names = Names()
    assert names.op("aten.mm.default") == "aten.mm.default"
    assert names.op("acme::secret_attention.default") == "op1"
    assert names.member("weight") == "weight"
    assert names.member("inner.gate") == "m1.m2"


def test_sentences_stay_where_they_name_nothing() -> None:
    estimate = make_estimate(
        assumptions=("checks of the data hold: what is asked of all elements is true", "the encoder is never called"),
        not_modelled=("torch.compile",),
        owners=(dataclasses.replace(FITS.owners[0], module="encoder.0"),),
    )
    (result,) = redacted([RecordedEstimate(estimate=estimate, history=None)])
    assert result.estimate.assumptions == (estimate.assumptions[0], LEFT_OUT)
    assert result.estimate.not_modelled == (LEFT_OUT,)
    assert Holder("", "", "", "") == Holder("", "", "", "")
