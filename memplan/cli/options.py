"""Options of more than one command, each declared once for Typer; ``memplan.cli.groups`` puts them together.

A job's options default to None, so that what was typed can be told from what was not; the defaults themselves stand in
``JobSpec``. Choices are checked in ``memplan.cli.check``, together with everything else. Options of one command alone
stand in its file and are made by ``option`` too.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from memplan.job import spec
from memplan.job.adapters import Quantize as Quantized
from memplan.units import parse_seconds

CHOICES: Mapping[str, tuple[str, ...]] = {
    "precision": get_args(spec.Precision),
    "optimizer": get_args(spec.OptimizerName),
    "optimizer_impl": get_args(spec.OptimizerImpl),
    "attention": get_args(spec.Attention),
    "compile": get_args(spec.Compile),
    "mode": get_args(spec.Mode),
    "data_dependent": get_args(spec.DataDependent),
    "quantize": get_args(Quantized),
    "compress_activations": get_args(spec.Compression),
    "float8": get_args(spec.Float8),
    "replay_buffer_on": get_args(spec.BufferPlace),
    "fail_on": ("oom", "tight", "unknown"),
}
"""Parameter → the words it takes."""
DEFAULT_TIMEOUT = 600.0
"""Seconds that the target's code may take before its process is ended."""

TARGET, STEP, DEVICE, REPORT = "Target", "Step", "Device", "Report"
"""Panels of ``--help``."""


_FLAGS: Mapping[str, str] = {"inputs": "--input", "formats": "--format", "as_json": "--json"}
"""Parameter → its option, where it is called otherwise: an option that is repeated names one of its values."""


def flag(name: str) -> str:
    """The option that sets a parameter: ``batch_size`` → ``--batch-size``."""
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


def seconds(text: str | float) -> float:
    """A duration as it is typed: ``30``, ``30s``, ``2m``; Typer passes a default through here, too."""
    with suppress(ValueError):
        # Numbers that are no durations, such as -1, are complained about together with everything else.
        return float(text)
    try:
        return parse_seconds(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def option(
    name: str,
    panel: str | None,
    help_text: str,
    *,
    metavar: str | None = None,
    default: str = "",
    short: str = "",
    parser: Callable[..., Any] | None = None,
) -> Any:
    """What Typer is told of an option.

    Args:
        name: The parameter that it sets; ``flag`` says how it is typed, ``CHOICES`` which words it takes.
        panel: Where ``--help`` lists it; None is with the options that have no panel.
        help_text: What it does.
        metavar: What stands for its value; None for a switch.
        default: Its default, in words.
        short: Its one-letter form.
        parser: Reads what is typed, where its type does not.
    """
    choices = CHOICES.get(name, ())
    parts = [help_text, ", ".join(choices) + "." if choices else "", f"(default: {default})" if default else ""]
    return typer.Option(
        flag(name),
        *([short] if short else []),
        help=" ".join(part for part in parts if part),
        metavar=metavar,
        autocompletion=(lambda: list(choices)) if choices else None,
        rich_help_panel=panel,
        show_default=False,
        parser=parser,
    )


Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="model.py, model.py:factory, package.module:factory, hf:DIR, hf:config.json or preset:NAME.",
        show_default=False,
    ),
]
AllowNetwork = Annotated[bool, option("allow_network", TARGET, "Let hf: targets be downloaded.")]
TrustRemoteCode = Annotated[bool, option("trust_remote_code", TARGET, "Let hf: targets run their own code.")]
Timeout = Annotated[
    float,
    option("timeout", TARGET, "Limit for running the target's code.", metavar="TIME", default="600s", parser=seconds),
]

BatchSize = Annotated[int | None, option("batch_size", STEP, "Samples per micro-batch.", metavar="N", default="1")]
SeqLen = Annotated[int | None, option("seq_len", STEP, "Tokens per sample.", metavar="N", default="the target's own")]
Inputs = Annotated[
    list[str] | None,
    option("inputs", STEP, "A model input, NAME=DTYPE[DIMS]; B is the batch size, S the sequence length. Repeatable.",
           metavar="SPEC"),
]  # fmt: skip
Precision = Annotated[str | None, option("precision", STEP, "Number format:", metavar="NAME", default="fp32")]
Optimizer = Annotated[
    str | None, option("optimizer", STEP, "Optimizer:", metavar="NAME", default="the target's own, else adamw")
]
OptimizerImpl = Annotated[
    str | None, option("optimizer_impl", STEP, "Its implementation:", metavar="NAME", default="auto, as on CUDA")
]
GradAccum = Annotated[
    int | None, option("grad_accum", STEP, "Micro-batches per optimizer step.", metavar="N", default="1")
]
ClipGradNorm = Annotated[
    float | None, option("clip_grad_norm", STEP, "Clip gradients to this norm.", metavar="NORM", default="off")
]
Attention = Annotated[str | None, option("attention", STEP, "SDPA kernel:", metavar="NAME", default="auto, as on CUDA")]
Checkpoint = Annotated[
    str | None,
    option("checkpoint", STEP, "Activation checkpointing: none, full or a plan file.", metavar="PLAN",
           default="none"),
]  # fmt: skip
Parallel = Annotated[
    str | None,
    option("parallel", STEP, "Ranks, as fsdp=8,tp=2: ddp, fsdp, fsdp1, hsdp=RxS, zero1 to zero3, tp, cp, pp, ep; "
           "reshard, offload, schedule, micro.", metavar="SPEC", default="none"),
]  # fmt: skip
Lora = Annotated[
    str | None,
    option("lora", STEP, "Train low-rank adapters, as r=16,alpha=32; targets=q_proj+v_proj, dropout=0.1, dora=yes; or "
           "peft's adapter_config.json.", metavar="SPEC", default="none"),
]  # fmt: skip
Quantize = Annotated[
    str | None, option("quantize", STEP, "Frozen weights of linear layers:", metavar="NAME", default="none")
]
Float8 = Annotated[
    str | None, option("float8", STEP, "Multiply linear layers in float8, by a recipe of torchao:", metavar="NAME",
                       default="none"),
]  # fmt: skip
LossChunks = Annotated[
    int | None,
    option("loss_chunks", STEP, "Make a language model's logits in so many parts.", metavar="N", default="1"),
]
OptimizerInBackward = Annotated[
    bool, option("optimizer_in_backward", STEP, "Update each weight in backward and free its gradient at once.")
]
OffloadActivations = Annotated[
    bool, option("offload_activations", STEP, "Keep what autograd saves in pinned host memory.")
]
CompressActivations = Annotated[
    str | None, option("compress_activations", STEP, "What autograd saves, as a what-if:", metavar="NAME",
                       default="none"),
]  # fmt: skip
DataWorkers = Annotated[
    int | None,
    option("data_workers", STEP, "Count the DataLoader's host memory, with so many workers.", metavar="N",
           default="not counted"),
]  # fmt: skip
Prefetch = Annotated[int | None, option("prefetch", STEP, "Batches ahead for each worker.", metavar="N", default="2")]
PinMemory = Annotated[bool, option("pin_memory", STEP, "The DataLoader pins its batches.")]
ReplayBuffer = Annotated[
    int | None,
    option("replay_buffer", STEP, "Samples that stay in memory to be drawn from.", metavar="N", default="0"),
]
ReplayBufferOn = Annotated[
    str | None, option("replay_buffer_on", STEP, "Where they stay:", metavar="NAME", default="host")
]
Compile = Annotated[
    str | None,
    option("compile", STEP, "How what torch.compile compiles, else the whole model, runs: as written, or as Inductor "
           "compiles it:", metavar="NAME", default="eager"),
]  # fmt: skip
Config = Annotated[
    list[Path] | None,
    option("config", STEP, "Settings of ds_config.json, accelerate.yaml, axolotl.yml, a JSON file of "
           "TrainingArguments or a setup; what is typed wins. Repeatable.", metavar="FILE"),
]  # fmt: skip
Mode = Annotated[str | None, option("mode", STEP, "What one step is:", metavar="NAME", default="train")]
MaxNewTokens = Annotated[
    int | None, option("max_new_tokens", STEP, "Tokens decoded by generate.", metavar="N", default="32")
]
KvBlockSize = Annotated[
    int | None,
    option("kv_block_size", STEP, "What generate's cache takes in blocks of so many tokens.", metavar="N",
           default="no blocks"),
]  # fmt: skip
DataDependent = Annotated[
    str | None,
    option("data_dependent", STEP, "Sizes that depend on values:", metavar="NAME", default="balanced"),
]

Gpus = Annotated[
    list[str],
    option("gpu", DEVICE, "GPU profile, as 'memplan gpus' lists them. Repeatable.", metavar="NAME"),
]
ProfileDirs = Annotated[
    list[Path] | None,
    option("profile_dir", DEVICE, "Folder of further GPU profiles. Repeatable.", metavar="DIR"),
]

Formats = Annotated[
    list[str] | None,
    option("formats", REPORT, "text or json; with =FILE not to standard output. Repeatable.",
           metavar="FORMAT[=FILE]", default="text", short="-f"),
]  # fmt: skip
FormatsAndExports = Annotated[
    list[str] | None,
    option("formats", REPORT, "text or json; or an export of the memory history: snapshot=FILE, perfetto, speedscope. "
           "With =FILE not to standard output. Repeatable.",
           metavar="FORMAT[=FILE]", default="text", short="-f"),
]  # fmt: skip
FormatsOfEstimate = Annotated[
    list[str] | None,
    option("formats", REPORT, "text, json or html; or an export of the memory history: snapshot=FILE, perfetto, "
           "speedscope. With =FILE not to standard output. Repeatable.",
           metavar="FORMAT[=FILE]", default="text", short="-f"),
]  # fmt: skip
AsJson = Annotated[bool, option("as_json", REPORT, "Same as --format json.")]
JsonAlone = Annotated[bool, option("as_json", None, "Write JSON instead of the table.")]
Explain = Annotated[bool, option("explain", REPORT, "Show every assumption and where each value came from.")]
Quiet = Annotated[bool, option("quiet", REPORT, "Only the verdict, no progress.", short="-q")]
FailOn = Annotated[
    str | None,
    option("fail_on", REPORT, "Exit 1 at this verdict or a worse one:", metavar="VERDICT", default="never"),
]
ExitZero = Annotated[bool, option("exit_zero", REPORT, "Exit 0 whatever the verdict.")]
