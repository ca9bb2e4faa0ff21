"""Predict published peaks of torchtitan by torchtitan's own programs, unmodified: FSDP1, eager and compiled FSDP2.

    python benchmarks/torchtitan.py TORCHTITAN TORCHAO [--only NAME …] [--save results/torchtitan.txt]

Writes the text, and a CSV beside it for ``measured_runs.py``.

``TORCHTITAN`` and ``TORCHAO`` are clones of github.com/pytorch/torchtitan and …/ao: each row's commits are unpacked
from them, and a tokenizer of the right size is made up, since none is part of it. What is typed is the source's own
command line with ``memplan estimate`` before it; the configuration is the file of that commit. Rows up to June 2025
are traced by torch 2.6, the release next to their nightlies: ``MEMPLAN_TORCH_2_6`` names a Python with it, with triton
and with what torchtitan needs (tiktoken, tokenizers, tyro, torchdata, tomli, datasets, torchao 0.9, sentencepiece,
tensorboard). In the programs of March 2024 one import is written otherwise (``RENAMED``).

The rows are not blind: selective checkpointing in compiled regions, a program's own options of the allocator and those
of ROCm builds were repaired with them. Nothing was fitted, but one thing was chosen by the errors: the peaks of
December 2024 are taken to be those of the allocator's default, where their launcher sets ``expandable_segments``. Both
are shown for them. Of torchao's rows in 8 bits, commits, launches and what traces them were set down before any error
was seen: all but the launcher's words is that of the bf16 row above them. That no interval rests on the tutorial's logs
was decided after the error of one had been seen.
"""

import argparse
import base64
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from measured_runs import UNSAID
from tokenizers import Tokenizer, models, pre_tokenizers

ROOT = Path(__file__).parents[1]
VOCABULARY = 128_256
TOKENS = VOCABULARY - 256
"""Of the older form, to which torchtitan adds 256 special ones."""
GIB = 1 << 30
WIDTHS = {"native": 9, "expandable": 12}
"""Mode of the allocator → width of its column."""
LAUNCHER = "--rdzv_backend c10d --rdzv_endpoint=localhost:0 --local-ranks-filter 0 --role rank --tee 3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published run."""

    name: str
    """What the tables here call it."""
    source: str
    """Who measured it."""
    commit: str
    """Of torchtitan."""
    torchao: str = ""
    """Commit of torchao; empty where the installed one is taken, or none is needed."""
    gpu: str
    """Profile; for H100s with 96 GB that of an H200, whose chip is the same."""
    nodes: int = 1
    """Machines of eight GPUs."""
    program: str
    """What ``torchrun`` is given."""
    compiled: bool
    """Is each block compiled?"""
    published: float
    """Reserved GiB."""
    mode: str
    """Of the allocator: the error is that of this one."""
    release: str = ""
    """The torch whose kernels and allocator are taken; empty for the one that traces."""
    old: bool = False
    """Does torch 2.6 trace it?"""
    torch_is_said: bool = True
    """Does its source say what ran, and does that trace it? Where not, no interval rests on the run."""
    active: float | None = None
    """GiB in blocks that are live or held back by another stream, where its source says them."""
    copies_on_stream: bool = False
    """Is FSDP2 made to do what it did until torch 2.5 (``COPYING``)?"""


_MARCH = "-m torchtitan.train --job.config_file ./torchtitan/models/llama/train_configs/llama3_8b.toml"
_JUNE = "-m torchtitan.train --job.config_file ./torchtitan/models/llama3/train_configs/llama3_8b.toml"
_AUGUST = f"{_JUNE} --training.local_batch_size 1"
_ROWWISE = "--model.converters=float8 --float8.recipe_name=rowwise"
_GATHERED = (
    "--model.converters=float8 --float8.enable_fsdp_float8_all_gather --float8.precompute_float8_dynamic_scale_for_fsdp"
)
_MX = "--model.converters=mx --mx.recipe_name=mxfp8_cublas"
_EAGER = Row(
    name="8 H100, eager", source="torchtitan, December 2024",
    commit="9dec370ad26b5f8e9a7333a0e36165018262644b", gpu="h200",
    program="train.py --job.config_file ./train_configs/llama3_8b.toml --training.batch_size 2", compiled=False,
    published=82.4, mode="native", old=True,
)  # fmt: skip
_FLOAT8 = (
    f"{_EAGER.program} --float8.enable_float8_linear --float8.enable_fsdp_float8_all_gather"
    " --float8.precompute_float8_dynamic_scale_for_fsdp"
)
"""As docs/float8.md of that commit has it."""
_H100 = Row(
    name="8 H100 of 2025, compiled", source="torchao docs", commit="b291ad662", gpu="h100-80g", program=_MARCH,
    compiled=True, published=47.65, mode="expandable", old=True,
)  # fmt: skip
_TUTORIAL = Row(
    name="tutorial, 8 H100, compiled", source="torchao docs", commit="775a486edd173ceb9be1c9b1b30af6ca2d4b4fa0",
    torchao="152a8e397e1383c55bf7b87a8eaa2b87ffb2c114", gpu="h200", program=_JUNE, compiled=True, published=30.89,
    mode="expandable", old=True, torch_is_said=False,
)  # fmt: skip
_MI300X = Row(
    name="8 MI300X, compiled", source="torchao docs", commit="2c8b5947991239913d67e2f7d22a255c3e2a9694",
    torchao="4fc4068d6", gpu="mi300x", program=_AUGUST, compiled=True, published=39.09, mode="expandable",
    release="2.9.0",
)  # fmt: skip
_B200 = Row(
    name="8 B200, compiled", source="torchao docs", commit="6fc499f6f5b32151a799188be2208cfb09faed30",
    torchao="e4e681be6", gpu="b200", program=_AUGUST, compiled=True, published=33.71, mode="expandable",
)  # fmt: skip
_CARD = 95.0396
"""GiB of the card of torchtitan's pull request 165, which gives its peaks in per cent of it."""
_LLAMA_2 = "train.py --job.config_file train_configs/llama_7b.toml --training.dataset minipile"
_FSDP1 = Row(
    name="8 H100, FSDP1, full", source="torchtitan, March 2024", commit="ab5d91823f835e8688f381e3ff24706d7ae50cff",
    gpu="h200", program=f"{_LLAMA_2} --activation_checkpoint.mode full", compiled=False, published=0.3382 * _CARD,
    mode="native", old=True, active=0.2481 * _CARD,
)  # fmt: skip
_EARLY_FSDP2 = replace(
    _FSDP1, name="8 H100, March 2024, full", commit="83c879f18763611bda68586c45f0082fd568d646", torch_is_said=False,
    published=0.3264 * _CARD, active=0.2392 * _CARD,
)  # fmt: skip
"""Until PyTorch's pull request 129721 (torch 2.5) what FSDP2 scatters was allocated on the stream of that collective,
where what computes cannot reuse it: their reserved bytes are of such a torch (``COPYING``)."""
_BY_OP = f"{_LLAMA_2} --activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op"
_EARLY_FSDP2_BY_OP = replace(
    _EARLY_FSDP2, name="8 H100, March 2024, by op", program=_BY_OP, published=0.6251 * _CARD, active=0.5213 * _CARD
)
RENAMED = ("torchtrain/parallelisms/parallelize_llama.py",
    "from torch.utils.checkpoint import _pt2_selective_checkpoint_context_fn_gen, checkpoint\n",
    '''from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def _pt2_selective_checkpoint_context_fn_gen(keeps):
    def policy(context, func, *args, **kwargs):
        kept = keeps("recompute" if context.is_recompute else "forward", func, *args, **kwargs)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
''')  # fmt: skip
"""File of torchtitan of March 2024, an import that no torch has had since 2.4, and what stands for it."""
COPYING = '''

import inspect
from types import SimpleNamespace

from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as groups

written = inspect.getsource(collectives.foreach_reduce)
begin, end = map(written.index, ("    reduce_scatter_input = torch.empty(", "    all_reduce_input = None\\n"))
copying = """
    device_handle = _get_device_handle(device.type)
    current_stream = device_handle.current_stream()
    reduce_scatter_stream.wait_stream(current_stream)
    with device_handle.stream(reduce_scatter_stream):
        reduce_scatter_input = torch.empty((reduce_scatter_input_numel,), dtype=reduce_dtype, device=device)
        foreach_reduce_scatter_copy_in(unsharded_grads, reduce_scatter_input, world_size)
        current_stream.wait_stream(reduce_scatter_stream)
        unsharded_grads.clear()
"""
exec(written[:begin] + copying + written[end:], vars(collectives))
groups.foreach_reduce = collectives.foreach_reduce
groups.ReduceScatterState = lambda _, event: SimpleNamespace(event=event)
'''
"""Behind torchtitan's file of March 2024, for torch 2.6: what is scattered is made on the stream of its collective, and
goes when that was given to it (before pull request 129721)."""
ROWS = (
    # torchtitan's pull request 165, whose parent's program is FSDP1's: Llama 2 7B, 8 x 2,048.
    _FSDP1,
    replace(_FSDP1, name="8 H100, FSDP1, by op", program=_BY_OP, published=0.6723 * _CARD, active=0.5298 * _CARD),
    # The commit itself, FSDP2's first.
    _EARLY_FSDP2,
    replace(_EARLY_FSDP2, name="the same, copied on stream", copies_on_stream=True),
    _EARLY_FSDP2_BY_OP,
    replace(_EARLY_FSDP2_BY_OP, name="the same by op, on stream", copies_on_stream=True),
    # torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3.
    _EAGER,
    replace(_EAGER, name="8 H100, compiled", compiled=True, published=77.0),
    replace(_EAGER, name="128 H100, eager", nodes=16, published=67.0),
    replace(_EAGER, name="128 H100, compiled", nodes=16, compiled=True, published=62.0),
    replace(_EAGER, name="8 H100, float8", compiled=True, program=_FLOAT8, published=76.8),
    replace(_EAGER, name="128 H100, float8", nodes=16, compiled=True, program=_FLOAT8, published=61.8),
    # torchao, docs/source/workflows/training.md: torchao 890e0ac8 is of 2025-02-28, and so is this commit. Its launcher
    # then: benchmarks/float8/training/float8_training_benchmark.sh of 8c81863b, which added the table.
    _H100,
    replace(
        _H100, name="8 H100 of 2025, tensorwise", torchao="890e0ac8", published=47.77,
        program=f"{_MARCH} {_GATHERED} --float8.force_recompute_fp8_weight_in_bwd",
    ),
    replace(_H100, name="8 H100 of 2025, rowwise", torchao="890e0ac8", program=f"{_MARCH} {_ROWWISE}", published=47.79),
    # torchao, docs/source/eager_tutorials/pretraining.rst of 488ecd4c: logs of 2025-06-04 and the commits that it
    # links; the last is without float8 all-gather. H100s with 96 GB, by the percentages.
    _TUTORIAL,
    replace(_TUTORIAL, name="tutorial, rowwise", program=f"{_JUNE} {_ROWWISE}", published=30.99),
    replace(_TUTORIAL, name="tutorial, tensorwise", program=f"{_JUNE} --model.converters=float8", published=30.91),
    # training.md, launcher: benchmarks/float8/training/llama3.sh of the torchao that it names.
    _MI300X,
    replace(_MI300X, name="8 MI300X, tensorwise", program=f"{_AUGUST} {_GATHERED}", published=39.07),
    replace(_MI300X, name="8 MI300X, rowwise_with_gw_hp", program=f"{_AUGUST} {_ROWWISE}_with_gw_hp", published=39.32),
    replace(_MI300X, name="8 MI300X, rowwise", program=f"{_AUGUST} {_ROWWISE}", published=39.32),
    _B200,
    replace(_B200, name="8 B200, tensorwise", program=f"{_AUGUST} {_GATHERED}", published=33.38),
    replace(_B200, name="8 B200, mxfp8_cublas", program=f"{_AUGUST} {_MX}", published=33.88),
    replace(_B200, name="8 B200, mxfp8_cublas_rceil", program=f"{_AUGUST} {_MX}_rceil", published=33.88),
    replace(_B200, name="8 B200, rowwise", program=f"{_AUGUST} {_ROWWISE}", published=33.72),
)  # fmt: skip


def unpacked(repository: Path, commit: str, folder: Path, parts: Sequence[str]) -> Path:
    """Some folders and files of a commit."""
    place = folder / commit[:9]
    if not place.exists():
        there = [part for part in parts if _has(repository, commit, part)]
        archive = subprocess.run(["git", "-C", repository, "archive", commit, *there], check=True, capture_output=True)
        place.mkdir(parents=True)
        subprocess.run(["tar", "x", "-C", place], input=archive.stdout, check=True)
    return place


def make_tokenizer_of_llama_2(place: Path) -> None:
    """Put a tokenizer of 32,000 words where torchtitan of March 2024 looks for it, and write its import otherwise."""
    from sentencepiece import sentencepiece_model_pb2

    made = sentencepiece_model_pb2.ModelProto()
    special = {"<unk>": 2, "<s>": 3, "</s>": 3}  # Their kinds: unknown, control.
    for number, (piece, kind) in enumerate([*special.items(), *((f"w{word}", 1) for word in range(32_000 - 3))]):
        made.pieces.add(piece=piece, type=kind, score=-number)
    made.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.BPE
    home = place / "torchtrain" / "datasets" / "tokenizer"
    home.mkdir(exist_ok=True)
    (home / "tokenizer.model").write_bytes(made.SerializeToString())
    file, former, later = RENAMED
    (place / file).write_text((place / file).read_text().replace(former, later))


def make_tokenizers(place: Path) -> None:
    """Put tokenizers where configurations of torchtitan look for them."""
    if (place / "torchtrain").exists():
        make_tokenizer_of_llama_2(place)
        return
    old = place / "torchtitan" / "datasets" / "tokenizer" / "original"
    if old.exists():
        return
    old.mkdir(parents=True)
    words = (base64.b64encode(number.to_bytes(4, "big").lstrip(b"\0") or b"\0").decode() for number in range(TOKENS))
    (old / "tokenizer.model").write_text("".join(f"{word} {rank}\n" for rank, word in enumerate(words)))
    vocabulary = {"<unk>": 0, "<|begin_of_text|>": 1, "<|end_of_text|>": 2}
    tokenizer = Tokenizer(models.WordLevel(vocabulary | {f"w{n}": n for n in range(3, VOCABULARY)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    for new in ("hf", "tokenizer"):
        home = place / "assets" / new / "Llama-3.1-8B"
        home.mkdir(parents=True)
        tokenizer.save(str(home / "tokenizer.json"))
        (home / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|begin_of_text|>"}))


def make_package(place: Path) -> None:
    """Let torchao say which version it is, and find its compiled module, of whose operators the fakes alone are run."""
    version = (place / "version.txt").read_text().strip()
    information = place / f"torchao-{version}.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torchao\nVersion: {version}\n")
    (place / "torchao" / "prototype" / "mxfp8_cuda.py").touch()


def _has(repository: Path, commit: str, part: str) -> bool:
    found = subprocess.run(["git", "-C", repository, "ls-tree", commit, part], check=True, capture_output=True)
    return bool(found.stdout)


def predicted(row: Row, place: Path, torchao: Path | None, mode: str) -> tuple[float, float, str]:
    """Predicted reserved GiB, those of them that are active at the peak, and the torch that traced.

    Raises:
        RuntimeError: The command failed.
    """
    python = os.environ.get("MEMPLAN_TORCH_2_6", sys.executable) if row.old else sys.executable
    conf = f"expandable_segments:{mode == 'expandable'}"
    words = ["-m", "memplan", "estimate", "--gpu", row.gpu, "--json", "--timeout", "1200", "--alloc-conf", conf]
    words += ["--compile", "inductor"] if row.compiled else []
    program = f"torchrun --nnodes={row.nodes} --nproc_per_node=8 {LAUNCHER} {row.program}"
    program += " --training.compile" if row.compiled else ""
    paths = [torchao, ROOT, os.environ.get("PYTHONPATH")]
    variables = {"PYTHONPATH": os.pathsep.join(str(path) for path in paths if path)}
    variables |= {"MEMPLAN_TORCH_RELEASE": row.release} if row.release else {}
    done = subprocess.run(
        [python, *words, "--", *program.split()],
        cwd=place, env=os.environ | variables, check=False, capture_output=True, text=True,
    )  # fmt: skip
    if not done.stdout.strip():
        raise RuntimeError(done.stderr.strip()[-400:])
    answer = json.loads(done.stdout)
    reserved = answer["peak"]["reserved_bytes"] / GIB
    return reserved, reserved * (1 - answer["fragmentation"]["external"]), answer["versions"]["torch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a row."""

    row: Row
    """The run."""
    found: dict[str, float]
    """Mode of the allocator → predicted reserved GiB; empty where it failed."""
    active: float = 0.0
    """Predicted GiB of blocks that are live or held back."""
    torch: str = ""
    """The release that traced it."""
    failure: str = ""
    """Why it failed."""

    @property
    def off(self) -> float:
        """Predicted over published, less one, in per cent."""
        return 100 * (self.found[self.row.mode] / self.row.published - 1)


def outcome(row: Row, torchtitan: Path, torchao: Path, folder: Path) -> Outcome:
    """Predict a run in the mode of the allocator that its launcher sets, and in the other where that is not taken."""
    parts = ("torchtitan", "torchtrain", "train.py", "train_configs")
    place = unpacked(torchtitan, row.commit, folder / ("changed" if row.copies_on_stream else "."), parts)
    make_tokenizers(place)
    file = place / RENAMED[0]
    if row.copies_on_stream and not file.read_text().endswith(COPYING):
        file.write_text(file.read_text() + COPYING)
    library = unpacked(torchao, row.torchao, folder, ("torchao", "version.txt")) if row.torchao else None
    if library:
        make_package(library)
    try:
        modes = WIDTHS if row.mode == "native" else (row.mode,)
        found = {mode: predicted(row, place, library, mode) for mode in modes}
    except RuntimeError as error:
        return Outcome(row=row, found={}, failure=str(error))
    release = f" as {row.release}" if row.release else "" if row.torch_is_said else UNSAID
    reserved = {mode: gib for mode, (gib, _, _) in found.items()}
    _, active, torch = found[row.mode]
    return Outcome(row=row, found=reserved, active=active, torch=torch + release)


def line(done: Outcome) -> str:
    """A line of the table."""
    row = done.row
    begin = f"{row.name:<29}{row.commit[:9]:<11}{row.published:>9.2f}"
    if not done.found:
        return f"{begin}  failed: {done.failure}"
    found = {mode: f"{gib:.2f}" for mode, gib in done.found.items()}
    figures = "".join(f"{found.get(mode, ''):>{width}}" for mode, width in WIDTHS.items())
    beside = f"; active {row.active:.2f}: {100 * (done.active / row.active - 1):+.2f}%" if row.active else ""
    return f"{begin}{figures}{done.off:>+8.2f}%  {done.torch} ({row.mode}{beside})"


def summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """How far off the runs of each kind are."""
    for compiled, name in ((False, "eager"), (True, "compiled")):
        as_they_are = [done for done in outcomes if done.found and not done.row.copies_on_stream]
        errors = [abs(done.off) for done in as_they_are if done.row.compiled == compiled]
        if errors:
            yield f"{name}: {len(errors)} rows, median {median(errors):.2f} %, worst {max(errors):.2f} %"


def write_csv(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write what ``measured_runs.py`` reads."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "source", "gpu", "published_gib", "predicted_gib", "mode", "torch"])
        for done in outcomes:
            if done.found:
                predicted = round(done.found[done.row.mode], 4)
                row = done.row
                writer.writerow([row.name, row.source, row.gpu, row.published, predicted, row.mode, done.torch])


def main() -> None:
    """Run, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torchtitan", type=Path)
    parser.add_argument("torchao", type=Path)
    parser.add_argument("--only", nargs="+", default=[], help="these runs alone, by name")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    lines = [
        f"{time.strftime('%Y-%m-%d')}, Llama in torchtitan's own programs as of each commit; reserved GiB",
        f"{'run':<29}{'commit':<11}{'published':>9}{'native':>9}{'expandable':>12}{'off':>9}  torch",
    ]
    print(*lines, sep="\n", flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for row in ROWS:
            if not options.only or row.name in options.only:
                outcomes.append(outcome(row, options.torchtitan, options.torchao, Path(folder)))
                lines.append(line(outcomes[-1]))
                print(lines[-1], flush=True)
    lines += summary(outcomes)
    print(*summary(outcomes), sep="\n")
    if options.save:
        options.save.write_text("\n".join(lines) + "\n", encoding="utf-8")
        write_csv(options.save.with_suffix(".csv"), outcomes)


if __name__ == "__main__":
    main()
