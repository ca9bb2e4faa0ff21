"""Every option of ``memplan estimate``, declared once for Typer.

A job's options default to None here, so that what was typed can be told from what was not; the defaults themselves
stand in ``JobSpec``. Choices are checked in ``memplan.cli.check``, together with everything else.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from memplan.job import spec

CHOICES: Mapping[str, tuple[str, ...]] = {
    "precision": get_args(spec.Precision),
    "optimizer": get_args(spec.OptimizerName),
    "optimizer_impl": get_args(spec.OptimizerImpl),
    "attention": get_args(spec.Attention),
    "compile": get_args(spec.Compile),
    "mode": get_args(spec.Mode),
    "data_dependent": get_args(spec.DataDependent),
    "fail_on": ("oom", "tight", "unknown"),
}
"""Parameter → the words it takes."""
DEFAULT_TIMEOUT = 600.0
"""Seconds that the target's code may take before its process is ended."""

_TARGET, _STEP, _DEVICE, _REPORT = "Target", "Step", "Device", "Report"


def flag(name: str) -> str:
    """The option that sets a parameter: ``batch_size`` → ``--batch-size``."""
    return "--input" if name == "inputs" else "--" + name.replace("_", "-")


def _option(
    name: str, panel: str, help_text: str, *, metavar: str | None = None, default: str = "", short: str = ""
) -> Any:
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
    )


Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="model.py, model.py:factory, package.module:factory, hf:DIR, hf:config.json or preset:NAME.",
        show_default=False,
    ),
]
AllowNetwork = Annotated[bool, _option("allow_network", _TARGET, "Let hf: targets be downloaded.")]
TrustRemoteCode = Annotated[bool, _option("trust_remote_code", _TARGET, "Let hf: targets run their own code.")]
Timeout = Annotated[
    float,
    _option("timeout", _TARGET, "Limit for running the target's code.", metavar="SECONDS", default="600"),
]

BatchSize = Annotated[int | None, _option("batch_size", _STEP, "Samples per micro-batch.", metavar="N", default="1")]
SeqLen = Annotated[int | None, _option("seq_len", _STEP, "Tokens per sample.", metavar="N", default="the target's own")]
Inputs = Annotated[
    list[str] | None,
    _option("inputs", _STEP, "A model input; B is the batch size, S the sequence length. Repeatable.",
            metavar="NAME=DTYPE[DIMS]"),
]  # fmt: skip
Precision = Annotated[str | None, _option("precision", _STEP, "Number format:", metavar="NAME", default="fp32")]
Optimizer = Annotated[
    str | None, _option("optimizer", _STEP, "Optimizer:", metavar="NAME", default="the target's own, else adamw")
]
OptimizerImpl = Annotated[
    str | None, _option("optimizer_impl", _STEP, "Its implementation:", metavar="NAME", default="auto, as on CUDA")
]
GradAccum = Annotated[
    int | None, _option("grad_accum", _STEP, "Micro-batches per optimizer step.", metavar="N", default="1")
]
ClipGradNorm = Annotated[
    float | None, _option("clip_grad_norm", _STEP, "Clip gradients to this norm.", metavar="NORM", default="off")
]
Attention = Annotated[
    str | None, _option("attention", _STEP, "SDPA kernel:", metavar="NAME", default="auto, as on CUDA")
]
Checkpoint = Annotated[
    str | None,
    _option("checkpoint", _STEP, "Activation checkpointing: none, full or a plan file.", metavar="PLAN",
            default="none"),
]  # fmt: skip
Compile = Annotated[
    str | None,
    _option("compile", _STEP, "How what torch.compile compiles, else the whole model, runs: as written, or as Inductor "
            "compiles it:", metavar="NAME", default="eager"),
]  # fmt: skip
Mode = Annotated[str | None, _option("mode", _STEP, "What one step is:", metavar="NAME", default="train")]
MaxNewTokens = Annotated[
    int | None, _option("max_new_tokens", _STEP, "Tokens decoded by generate.", metavar="N", default="32")
]
DataDependent = Annotated[
    str | None,
    _option("data_dependent", _STEP, "Sizes that depend on values:", metavar="NAME", default="balanced"),
]

Gpus = Annotated[
    list[str],
    _option("gpu", _DEVICE, "GPU profile, as 'memplan gpus' lists them. Repeatable.", metavar="NAME"),
]
ProfileDirs = Annotated[
    list[Path] | None,
    _option("profile_dir", _DEVICE, "Folder of further GPU profiles. Repeatable.", metavar="DIR"),
]

Formats = Annotated[
    list[str] | None,
    _option("format", _REPORT, "text or json; with =FILE not to standard output. Repeatable.",
            metavar="FORMAT[=FILE]", default="text", short="-f"),
]  # fmt: skip
FormatsAndExports = Annotated[
    list[str] | None,
    _option("format", _REPORT, "text or json; or an export of the memory history: snapshot=FILE, perfetto, speedscope. "
            "With =FILE not to standard output. Repeatable.",
            metavar="FORMAT[=FILE]", default="text", short="-f"),
]  # fmt: skip
AsJson = Annotated[bool, _option("json", _REPORT, "Same as --format json.")]
Explain = Annotated[bool, _option("explain", _REPORT, "Show every assumption and where each value came from.")]
Quiet = Annotated[bool, _option("quiet", _REPORT, "Only the verdict, no progress.", short="-q")]
FailOn = Annotated[
    str | None,
    _option("fail_on", _REPORT, "Exit 1 at this verdict or a worse one:", metavar="VERDICT", default="never"),
]
ExitZero = Annotated[bool, _option("exit_zero", _REPORT, "Exit 0 whatever the verdict.")]
