"""Formulas of textbooks beside what is traced, on models as they are used: where the two part, a row says why.

``--write`` puts the table into ``docs/textbook.md``; it is printed either way. Within the terms that they state the
formulas hold to the byte (``tests/test_textbook.py``); here they are used as people use them, on whole models.

    python benchmarks/textbook.py [--write]
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan.hardware.catalog import load_profile
from memplan.job.adapters import parse_lora
from memplan.job.load import load_source
from memplan.job.spec import JobSpec, PresetTarget
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job

PAGE = Path(__file__).parents[1] / "docs" / "textbook.md"
BEGIN = "<!-- begin: benchmarks/textbook.py --write -->"
END = "<!-- end: benchmarks/textbook.py -->"
GPU = "a100-80g"
MIB = 2**20

GPT2 = {"parameters": 124_439_808, "layers": 12, "width": 768, "heads": 12, "vocabulary": 50_257}
"""openai-community/gpt2, config.json; parameters with tied embeddings counted once."""
LLAMA = {"parameters": 1_235_814_400, "layers": 16, "kv_heads": 8, "head_size": 64}
"""meta-llama/Llama-3.2-1B, config.json."""
LLAMA_LINEAR = ((2048, 2048), (2048, 512), (2048, 512), (2048, 2048), (2048, 8192), (2048, 8192), (8192, 2048))
"""In and out of the seven linear layers of each of its blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One formula on one model."""

    quantity: str
    """What it is of."""
    formula: str
    """As it is taught."""
    says: int
    """What it gives, in bytes (or parameters)."""
    traced: int
    """What is traced."""
    why: str
    """Where the difference comes from."""


def traced(preset: str, **options: Any) -> Trace:
    """Trace a preset."""
    spec = JobSpec(target=PresetTarget(name=preset), **options)
    return trace_job(lambda: load_source(spec), spec, DeviceTraits.of(load_profile(GPU)))


def total(trace: Trace, role: str) -> int:
    """Bytes of all storages of a role that lie on the device."""
    return sum(each.nbytes for each in trace.storages if each.role == role and each.place == "device")


def peak(trace: Trace) -> int:
    """Most bytes alive at once on the device."""
    live = most = 0
    for event in trace.events:
        storage = trace.storages[event.storage]
        if storage.place == "device":
            live += storage.nbytes if event.action == "alloc" else -storage.nbytes
            most = max(most, live)
    return most


def activations(trace: Trace) -> int:
    """Bytes that blocks' forward ops of the last step made and that are alive when its backward begins."""
    step = trace.steps[-1]
    first = next(op.index for op in trace.ops[step.first_op :] if op.phase == "backward")
    alive: set[int] = set()
    for event in trace.events[step.first_event : step.end_event]:
        if event.op < first and trace.storages[event.storage].role == "intermediate" and ".h." in _module(trace, event):
            (alive.add if event.action == "alloc" else alive.discard)(event.storage)
    return sum(trace.storages[each].nbytes for each in alive)


def _module(trace: Trace, event: Any) -> str:
    birth = trace.storages[event.storage].birth
    return "" if birth is None else f".{trace.ops[birth].module}."


def rows() -> Iterator[Row]:
    """All rows."""
    p, s, b = GPT2["parameters"], 1024, 4
    whole = traced("gpt2", batch_size=b, seq_len=s)
    yield Row(quantity="GPT-2 weights, fp32", formula="4 P", says=4 * p, traced=total(whole, "parameter"), why="holds")
    yield Row(
        quantity="AdamW states, fp32", formula="8 P", says=8 * p, traced=total(whole, "optimizer_state"), why="holds"
    )
    half = traced("gpt2", batch_size=b, seq_len=s, precision="bf16")
    yield Row(
        quantity="AdamW states, model cast to bf16",
        formula="8 P",
        says=8 * p,
        traced=total(half, "optimizer_state"),
        why="states have the weights' type",
    )
    yield Row(
        quantity=f"peak of training, {b} x {s}",
        formula="16 P",
        says=16 * p,
        traced=peak(whole),
        why="activations, logits above all, are not in it",
    )
    standard = traced("gpt2", batch_size=b, seq_len=s, precision="bf16", attention="math")
    flash = traced("gpt2", batch_size=b, seq_len=s, precision="bf16", attention="flash")
    width, heads, layers = GPT2["width"], GPT2["heads"], GPT2["layers"]
    taught = layers * s * b * width * (34 * width + 5 * heads * s) // width
    yield Row(
        quantity="activations of the blocks, bf16, standard attention",
        formula="L s b h (34 + 5 a s / h)",
        says=taught,
        traced=activations(standard),
        why="GELU: 24 s b h more; torch's math attention computes in fp32: 9 bytes a pair, not 5",
    )
    yield Row(
        quantity="the same, flash attention",
        formula="34 L s b h",
        says=34 * layers * s * b * width,
        traced=activations(flash),
        why="GELU, which this model writes out as ops that keep three more tensors of 4 h",
    )
    tokens = 512 + 32 - 1
    generated = traced("llama-3.2-1b", mode="generate", seq_len=512, max_new_tokens=32, precision="bf16")
    cache = 2 * LLAMA["layers"] * LLAMA["kv_heads"] * LLAMA["head_size"] * tokens * 2
    one = cache // (2 * LLAMA["layers"])
    yield Row(
        quantity="Llama-3.2-1B, cache of 512 + 32 tokens, bf16",
        formula="2 L k d t 2",
        says=cache,
        traced=one * most_alive(generated, one),
        why="holds; the last token is never fed",
    )
    lora = traced("llama-3.2-1b", seq_len=128, precision="bf16", lora=parse_lora("r=16"), quantize="nf4-double")
    trained = LLAMA["layers"] * sum(16 * (left + right) for left, right in LLAMA_LINEAR)
    yield Row(
        quantity="LoRA of rank 16, parameters",
        formula="r (in + out)",
        says=trained,
        traced=lora.model.trainable_parameters,
        why="holds",
    )
    frozen = total(lora, "parameter") - 4 * trained
    yield Row(
        quantity="Llama-3.2-1B as nf4, doubly quantised",
        formula="0.516 P",
        says=round(LLAMA["parameters"] * 4.127 / 8),
        traced=frozen,
        why="embeddings (a fifth of P) are no linear layer, and peft makes them fp32",
    )


def most_alive(trace: Trace, size: int) -> int:
    """The largest number of storages of a size alive at once."""
    live = most = 0
    for event in trace.events:
        if trace.storages[event.storage].nbytes == size:
            live += 1 if event.action == "alloc" else -1
            most = max(most, live)
    return most


def table() -> str:
    """The rows as Markdown."""
    lines = ["| quantity | formula | says | traced | off | why |", "|---|---|---|---|---|---|"]
    for row in rows():
        unit = 1 if "parameters" in row.quantity else MIB
        shown = [f"{value:,}" if unit == 1 else f"{value / MIB:,.1f} MiB" for value in (row.says, row.traced)]
        off = (row.says - row.traced) / row.traced
        lines.append(f"| {row.quantity} | {row.formula} | {shown[0]} | {shown[1]} | {off:+.1%} | {row.why} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put it into docs/textbook.md")
    found = table()
    print(found)
    if parser.parse_args().write:
        page = PAGE.read_text("utf-8")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{found}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
