"""Published runs said by plain options instead of by the program that made them: how far off each way of saying is.

    python benchmarks/plain_options.py [--only ID …] [--save results/plain_options.txt]

Every run of litgpt's tables on one GPU whose model is a preset, and the two of BERT in transformers' documentation.
``MEMPLAN_DATA`` names the folder of research data. litgpt's own loop is neither of the two: its adapters have the
type of the model, its cross entropy is chunked, and it lets go of the logits.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

# As a script, Python finds ``published`` beside it; memplan itself may be a checkout that is not installed.
sys.path.append(str(Path(__file__).parents[1]))

from published.litgpt.recipes import RECIPES, Recipe
from published.litgpt.rows import figures

from memplan.job.presets.hub_names import preset_of

NAMED_OTHERWISE = {"tiny-llama-1.1b": "tinyllama-1.1b"}
"""litgpt's name, in small letters → the preset's, where the hub has another."""
FUSED = {"falcon-7b": "query_key_value", "phi-3-mini": "qkv_proj"}
"""Presets whose queries and values are one layer."""
QUANTIZE = {"nf4": "nf4", "nf4-dq": "nf4-double"}
MIB = 1 << 20
BERT = {
    "hf-bertlarge-8-bitAdam": ("--batch-size", "4", "--optimizer", "adamw8bit", "--precision", "fp32"),
    "hf-bertlarge-all+Adafactor": (
        *("--batch-size", "1", "--grad-accum", "4", "--optimizer", "adafactor"),
        *("--checkpoint", "full", "--precision", "fp16-mixed"),
    ),
}
"""Rows of transformers' performance.mdx (nvidia-smi on a V100 of January 2022) → their options beside the common."""
BERT_MEASURED = {"hf-bertlarge-8-bitAdam": 13085 * MIB, "hf-bertlarge-all+Adafactor": 4847 * MIB}
WAYS = {
    "plain, bf16": ("--loop", "plain", "--precision", "bf16"),
    "trainer, bf16": ("--loop", "trainer", "--precision", "bf16"),
    "nothing said": (),
}
"""Who trains, and in which type: as plain options meant it before, and what they mean by themselves today."""


class Row(NamedTuple):
    """One published run."""

    id: str
    kind: str
    words: tuple[str, ...]
    measured: int
    metric: str
    """Of the JSON's ``peak``."""
    ways: tuple[str, ...] = tuple(WAYS)


def main() -> None:
    """Estimate each row each way and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    rows = [row for row in (*_litgpt(), *_bert()) if not options.only or row.id in options.only]
    lines: list[str] = []
    for line in _table(rows):
        print(line, flush=True)
        lines.append(line)
    if options.save:
        options.save.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _litgpt() -> Iterator[Row]:
    for identity, measured in figures().items():
        recipe = RECIPES.get(identity)
        preset = recipe and preset_of(NAMED_OTHERWISE.get(recipe.model.lower(), recipe.model))
        if recipe and preset and recipe.method in {"lora", "full"}:
            kind, words = f"litgpt {'NF4' if recipe.quantize else 'bf16'}", tuple(_words(recipe, preset.name))
            yield Row(id=identity, kind=kind, words=words, measured=measured, metric="allocated_bytes")


def _words(recipe: Recipe, preset: str) -> Iterator[str]:
    yield from (f"preset:{preset}", "--gpu", recipe.gpu)
    yield from ("--batch-size", str(recipe.micro_batch), "--seq-len", str(recipe.length))
    if recipe.method == "lora":
        targets = "all-linear" if recipe.everywhere else FUSED.get(preset, "q_proj+v_proj")
        yield from ("--lora", f"r={recipe.rank},targets={targets},dropout={recipe.dropout}")
    if recipe.quantize:
        yield from ("--quantize", QUANTIZE[recipe.quantize])


def _bert() -> Iterator[Row]:
    common = ("preset:bert-large", "--gpu", "v100-16g", "--seq-len", "512", "--attention", "math")
    for identity, words in BERT.items():
        measured = BERT_MEASURED[identity]
        # Their precision is said, so that only the loop is left to choose.
        yield Row(identity, "bert", (*common, *words), measured, "device_bytes", ("loop plain", "loop trainer"))


def _table(rows: Sequence[Row]) -> Iterator[str]:
    errors: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        said: list[str] = []
        for way in row.ways:
            error = _error(row, WAYS.get(way, tuple(f"--{way}".split())))
            if isinstance(error, float):
                errors.setdefault((row.kind, way), []).append(error)
            said.append(f"{way} {error:+.2%}" if isinstance(error, float) else f"{way}: {error}")
        yield f"{row.id:28}{row.measured / MIB:10,.0f} MiB   {'   '.join(said)}   {' '.join(row.words)}"
    for (kind, way), found in errors.items():
        worst = max(found, key=abs)
        yield f"{kind:12} {way:14} {len(found):3} rows, median {median(map(abs, found)):.2%}, worst {worst:+.2%}"


def _error(row: Row, way: tuple[str, ...]) -> float | str:
    """Share by which the prediction is off, or what was said instead of one."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "memplan", "estimate", *row.words, *way, "--quiet", "-f", f"json={answer}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not answer.exists():
            return " ".join(done.stderr.split())[:160]
        predicted = json.loads(answer.read_text(encoding="utf-8"))["peak"][row.metric]
    return float(predicted / row.measured - 1)


if __name__ == "__main__":
    main()
