"""The text report: laws over any estimate, and goldens of the final text."""

import re
import shlex
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from memplan.measure.digest_records import Curve, HistoryDigest
from memplan.measure.records import Advice, Estimate, KvCache, Owner, Verdict
from memplan.report.estimate.owners import grouped
from memplan.report.estimate.text import breakdown_lines, render
from memplan.report.estimate.verdict import SYMBOLS, statement
from memplan.units import GIB, format_apart, format_bytes, parse_size
from tests.report.estimate_strategies import OWNERS, estimates
from tests.report.example_estimates import A100, CPU, FITS, H100, LONG, OOM, TIGHT, UNKNOWN, make_estimate

LAYERS = make_estimate(
    owners=tuple(
        Owner(module=f"model.layers.{layer}.mlp", source="modeling_llama.py:176", category=category, bytes=size << 20)
        for layer in range(32)
        for category, size in (("parameter", 336), ("activation", 60))
    )
)
CASES = {
    "repeated-layers": [LAYERS],
    "fits": [FITS],
    "tight": [TIGHT],
    "oom": [OOM],
    "unknown": [UNKNOWN],
    "long-names": [LONG],
    "cpu-without-limit": [make_estimate(gpu=CPU)],
    "does-not-repeat": [make_estimate(repeats=False)],
    "lora": [make_estimate(trainable_parameters=3_407_872)],
    "several": [OOM, FITS, UNKNOWN],
    "loaded": [make_estimate(peak=replace(FITS.peak, host_bytes=3 * GIB, data_pipeline_bytes=5 * GIB))],
    "generates": [make_estimate(kv_cache=KvCache(bytes=GIB))],
    "generates-paged": [
        make_estimate(kv_cache=KvCache(bytes=GIB, block_size=2**31, blocks=2**40, paged_bytes=1000 * GIB))
    ],
    "offloaded": [make_estimate(peak=replace(FITS.peak, host_bytes=17 * GIB, nvme_bytes=30 * GIB))],
    "evaluates": [make_estimate(peak=replace(FITS.peak, after_epoch_bytes=75 * GIB))],
}


def plain(shown: list[Estimate], **options: object) -> list[str]:
    return [line.plain for line in render(shown, **options)]


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, snapshot: SnapshotAssertion) -> None:
    assert "\n".join(plain(CASES[name])) == snapshot


@pytest.mark.parametrize("name", ["oom", "long-names", "several", "unknown"])
def test_golden_explained(name: str, snapshot: SnapshotAssertion) -> None:
    assert "\n".join(plain(CASES[name], explain=True)) == snapshot


def test_golden_quiet(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(plain([OOM, FITS], quiet=True)) == snapshot


def test_the_first_line_says_the_verdict_and_the_peak() -> None:
    [line] = plain([FITS], quiet=True)
    assert f"peak {format_bytes(FITS.peak.device_bytes)}" in line
    assert plain([FITS])[0] == line


def test_what_runs_out_ends_with_a_change_that_fits_or_the_command_that_looks_for_one() -> None:
    """Another model is no such change, nor are shorter texts."""
    hopeless = replace(OOM, advice=tuple(advice for advice in OOM.advice if advice.device_bytes > A100.usable_bytes))
    command = "memplan recommend 'my model.py' --batch-size 8 --lora r=16,alpha=32 --gpu a100-40g --seq-len 4096"
    for width in (60, 80, 100):
        lines = plain([hopeless], width=width, commands={"a100-40g": command})
        shown = lines[1 + len(hopeless.advice) : lines.index("")]
        typed = " ".join(line.removesuffix("\\").strip() for line in shown).removeprefix("search").split()
        assert shlex.split(" ".join(typed)) == shlex.split(command)
    assert "search" not in "\n".join(plain([OOM], commands={"a100-40g": command}))
    assert "search" not in "\n".join(plain([hopeless]))
    for change in ("half the layers: n_layer 6", "--seq-len 815"):
        other = replace(OOM, advice=(Advice(change=change, device_bytes=GIB, slowdown=-0.5),))
        assert "search" in "\n".join(plain([other], commands={"a100-40g": command}))
    longer = f"memplan recommend {'long' * 30}.py"
    assert "with the same words" in "\n".join(plain([hopeless], commands={"a100-40g": longer}))


@given(st.lists(estimates(), min_size=1, max_size=3), st.booleans(), st.integers(20, 200))
def test_no_line_is_wider_than_asked_or_holds_a_line_break(shown: list[Estimate], explain: bool, width: int) -> None:
    for line in plain(shown, explain=explain, width=width):
        assert cell_len(line) <= min(max(width, 60), 100)
        assert line.isprintable()


@given(estimates())
def test_the_terminal_prints_each_line_as_it_is(shown: Estimate) -> None:
    file = StringIO()
    console = Console(file=file, width=80, highlight=False)
    lines = render([shown])
    for line in lines:
        console.print(line, no_wrap=True)
    assert file.getvalue().split("\n")[:-1] == [line.plain for line in lines]


@given(estimates())
def test_the_bars_add_up_to_the_same_length_whatever_the_sizes(shown: Estimate) -> None:
    lengths = {"█": 8, "▉": 7, "▊": 6, "▋": 5, "▌": 4, "▍": 3, "▎": 2, "▏": 1}
    lines = breakdown_lines(shown, 80)
    sizes = [size for size in shown.breakdown.values() if size]
    assert len(lines) == len(sizes)
    drawn = [sum(lengths.get(char, 0) for char in line.plain) for line in lines]
    if sizes:
        assert sum(drawn) >= 8 * 25
        for size, length in zip(sizes, drawn, strict=True):
            assert abs(length / sum(drawn) - size / sum(sizes)) <= 1 / sum(drawn)


@given(estimates())
def test_the_verdict_is_told_in_word_and_symbol_on_the_first_line(shown: Estimate) -> None:
    symbols = {Verdict.FITS: "✓", Verdict.TIGHT: "!", Verdict.OOM: "✗", Verdict.UNKNOWN: "?"}
    assert re.match(rf"\{symbols[shown.verdict]} {shown.verdict.name}\b", plain([shown])[0])


def test_symbols_differ() -> None:
    assert len(set(SYMBOLS.values())) == len(Verdict)


@given(estimates().map(lambda shown: replace(shown, verdict=Verdict.UNKNOWN, advice=())))
def test_an_unknown_verdict_prints_no_size(shown: Estimate) -> None:
    named = replace(shown, target="t", gpu=H100, options={}, provenance={}, assumptions=(), not_modelled=())
    text = "\n".join(plain([named]) + plain([named], explain=True))
    assert not re.search(r"\d (B|KiB|MiB|GiB|TiB)\b(?! parameters| trainable)", text)


def test_statements_say_the_difference_that_matters() -> None:
    used = sum(FITS.breakdown.values())
    assert statement(replace(FITS, gpu=replace(H100, usable_bytes=used + 3 * GIB))).startswith("3.00 GiB free")
    short = replace(FITS, gpu=replace(A100, usable_bytes=used - 2 * GIB), verdict=Verdict.OOM)
    assert statement(short).startswith("2.00 GiB over")
    assert statement(make_estimate(gpu=CPU)) == "no fixed limit"


def test_markup_in_names_is_shown_not_obeyed() -> None:
    shown = make_estimate(target="[red]model.py[/red]")
    file = StringIO()
    Console(file=file, force_terminal=True, width=80).print(*render([shown]), sep="\n")
    assert "[red]model.py[/red]" in re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())


def test_options_that_somebody_gave_are_on_the_job_line_and_defaults_are_not() -> None:
    text = "\n".join(plain([FITS]))
    assert "grad_accum 4" in text
    assert "attention" not in text
    assert "data_dependent" not in text


def test_repeated_blocks_are_one_owner() -> None:
    assert [(owner.module, owner.category, owner.bytes >> 20) for owner in grouped(LAYERS.owners)] == [
        ("model.layers.*.mlp x32", "parameter", 32 * 336),
        ("model.layers.*.mlp x32", "activation", 32 * 60),
    ]


@pytest.mark.parametrize("module", ["", "conv2d", "layer1.0.conv1", "0", "block.1x1"])
def test_an_owner_alone_keeps_its_name(module: str) -> None:
    owner = Owner(module=module, source="", category="parameter", bytes=1)
    assert grouped([owner]) == [owner]


def test_numbers_inside_names_do_not_group() -> None:
    owners = [Owner(module=name, source="", category="parameter", bytes=1) for name in ("conv1", "conv2", "norm.1x1")]
    assert len(grouped(owners)) == 3


@given(st.lists(OWNERS, max_size=20))
def test_groups_hold_all_bytes_largest_first(owners: list[Owner]) -> None:
    groups = grouped(owners)
    assert sum(group.bytes for group in groups) == sum(owner.bytes for owner in owners)
    assert [group.bytes for group in groups] == sorted((group.bytes for group in groups), reverse=True)


def test_a_sentence_of_provenance_is_kept_for_explain_and_shown_there_whole() -> None:
    sentence = "input_ids and labels, no attention_mask: sequences are packed, none is padded"
    shown = make_estimate(provenance={"batch": sentence, "seq_len": "--seq-len"})
    assert "packed" not in "\n".join(plain([shown]))
    assert "seq_len --seq-len" in "\n".join(plain([shown]))
    assert sentence in " ".join(" ".join(plain([shown], explain=True)).split())


def drawn(peak: int) -> HistoryDigest:
    curve = Curve(
        events=(0, 10, 20, 30), allocated=(1, peak // 2, peak, 1), reserved=(0, peak, peak, peak), categories={}
    )
    return HistoryDigest(
        events=40, peak_event=20, reserved_peak_event=10, spans=(), curve=curve, holders=(), buffers=(),
        buffers_left_out=0, segments=(),
    )  # fmt: skip


@pytest.mark.parametrize("width", [80, 120])
def test_the_timeline_is_that_of_the_one_shown_in_detail(width: int) -> None:
    lines = plain([UNKNOWN, FITS], width=width, digests=[None, drawn(8 * GIB)])
    [top] = [line for line in lines if line.lstrip().startswith("8.00 GiB ")]
    [pointer] = [line for line in lines if line.endswith("peak ^")]
    assert "█" in top
    assert top.index("█") <= pointer.index("^") <= top.rindex("█") + 1
    assert max(map(cell_len, lines)) <= width
    assert not [line for line in plain([FITS], digests=()) if "event by event" in line]


@given(st.lists(st.integers(0, 2**45), min_size=2, max_size=5))
def test_sizes_that_differ_look_different_and_alike_ones_alike(sizes: list[int]) -> None:
    told = format_apart(sizes)
    assert [told.index(text) for text in told] == [sizes.index(size) for size in sizes]
    units = {text.partition(" ")[2] for text in told}
    if told != [format_bytes(size) for size in sizes]:
        assert len(units) == 1
    for size, text in zip(sizes, told, strict=True):
        assert parse_size(text.replace(",", "")) == pytest.approx(size, rel=0.005)
