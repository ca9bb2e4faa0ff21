"""Is the order of predicted throughputs that of published ones? Runs whose source says tokens per second.

    python benchmarks/recommend.py [--compiled] [--only WORD …] [--out benchmarks/results/recommend_time.txt]

Rows of one table ran on one machine with one code; Kendall's tau is over the pairs of a table. torchtune's rows ran
compiled; tracing compiled models of this size takes minutes, so all rows of a table are traced eagerly, which leaves
their order to the changes that the rows differ in. What eager and compiled cost beside each other is a table of its own
(--compiled). No constant of the clock was chosen with these rows in view.
"""

import argparse
import gc
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path

# As a script, Python finds ``published`` beside it; memplan itself may be a checkout that is not installed.
sys.path.append(str(Path(__file__).parents[1]))

from published.speed import torchtitan, torchtune
from published.speed.row import Row, predict

from memplan.errors import MemplanError

NOT_COUNTED = (torchtune.METHODS_OTHERWISE,)
"""Tables that repeat rows of another."""

LEFT_OUT = (
    "torchtitan, llama3_h100_202412, tables 2, 4, 5, 6, last rows of 1 and 3: float8 layers, compiled",
    "torchtitan, the same, compiled bf16 rows of tables 1 and 3: compiled FSDP2 of 8B is not traced here",
    "torchtitan, asyncTP 2025-06: figures are in a picture",
    "torchtitan, H200 2025-06; torchao, training docs: float8, compiled on nightlies",
    "torchao, float8nocompile: its float8 rows, whose Triton kernels have no published rates here",
    "torchao, moe_training: grouped kernels of a prototype on commits that are not said",
    "torchtune, 405B QLoRA: frozen NF4 tensors under FSDP2 are torchao's, which bitsandbytes' do not stand for",
    "Megatron-LM, functional tests: no throughput in the table of published peaks",
    "ms-swift; Qwen: lengths of a data set that is not at hand, device_map; models that are remote code",
)


def kendall(pairs: Sequence[tuple[float, float]]) -> float:
    """Kendall's tau-a: concordant less discordant pairs, as a share of all."""
    signs = [(a - c) * (b - d) for (a, b), (c, d) in combinations(pairs, 2)]
    return sum((sign > 0) - (sign < 0) for sign in signs) / len(signs) if signs else 1.0


APART = 0.05
"""Published rates that differ by less are as good as equal: runs of one configuration do."""


def ordered(pairs: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Pairs of rows in the right order, and how many there are, of those whose published rates are apart."""
    told = [(a - c) * (b - d) > 0 for (a, b), (c, d) in combinations(pairs, 2) if abs(a - c) > APART * max(a, c)]
    return sum(told), len(told)


def conclude(pairs: Mapping[str, Sequence[tuple[float, float]]]) -> Iterator[str]:
    """How well each table's order was told, and how far off its rates are."""
    for table, found in pairs.items():
        right, count = ordered(found)
        ratio = statistics.median(predicted / published for published, predicted in found)
        tau = f"tau {kendall(found):+.2f}" if len(found) > 1 else "one row "
        yield f"{tau}; {right} of {count} pairs more than 5 % apart in order; ratio {ratio:.2f} in the median; {table}"
    counted = [ordered(found) for table, found in pairs.items() if table not in NOT_COUNTED]
    yield f"all: {sum(each[0] for each in counted)} of {sum(each[1] for each in counted)} pairs in order"


def measured(rows: Iterator[Row], say: Callable[[str], None]) -> dict[str, list[tuple[float, float]]]:
    """Published and predicted rates by table; each row is said when it is done."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.table not in pairs:
            say(f"\n{row.table}\n{'':30}{'tok/s':>9}{'predicted':>11}{'ratio':>7}{'GiB':>8}{'predicted':>11}")
            pairs[row.table] = []
        try:
            told = predict(row)
        except MemplanError as error:
            say(f"{row.name:30}{row.tokens_per_second:9.0f}  {error.what}")
            continue
        pairs[row.table].append((row.tokens_per_second, told.tokens_per_second))
        gib = "" if row.gib is None else f"{row.gib:.1f}"
        rates = f"{row.tokens_per_second:9.0f}{told.tokens_per_second:11.0f}"
        say(f"{row.name:30}{rates}{told.tokens_per_second / row.tokens_per_second:7.2f}{gib:>8}{told.gib:11.1f}")
        gc.collect()
    return {table: found for table, found in pairs.items() if found}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose table or name has one of these words")
    given = parser.parse_args()
    gc.disable()
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    rows = chain(torchtune.rows(compiled=given.compiled), torchtitan.rows(), torchtune.sharded_rows())
    pairs = measured((row for row in rows if any(word in f"{row.table} {row.name}" for word in given.only)), say)
    say("")
    for line in conclude(pairs):
        say(line)
    say("\nTokens per second are those of one rank; GiB are allocated bytes, published ones partly reserved. Left out:")
    for line in LEFT_OUT:
        say(f"  {line}")
    if given.out:
        given.out.write_text("\n".join(lines).lstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
