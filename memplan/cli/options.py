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
    name: str, panel: str, help_text: str, *, default: str | bool = False, metavar: str | None = None, short: str = ""
) -> Any:
    choices = CHOICES.get(name, ())
    return typer.Option(
        flag(name),
        *([short] if short else []),
        help=help_text,
        metavar="|".join(choices) if choices else metavar,
        autocompletion=(lambda: list(choices)) if choices else None,
        rich_help_panel=panel,
        show_default=default,
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

BatchSize = Annotated[int | None, _option("batch_size", _STEP, "Samples per micro-batch.", default="1")]
SeqLen = Annotated[int | None, _option("seq_len", _STEP, "Tokens per sample.", default="the target's own")]
Inputs = Annotated[
    list[str] | None,
    _option("inputs", _STEP, "A model input, B for batch size, S for sequence length; repeatable.",
            metavar="NAME=DTYPE[DIMS]"),
]  # fmt: skip
Precision = Annotated[str | None, _option("precision", _STEP, "-mixed is autocast.", default="fp32")]
Optimizer = Annotated[str | None, _option("optimizer", _STEP, "", default="the target's own, else adamw")]
OptimizerImpl = Annotated[str | None, _option("optimizer_impl", _STEP, "", default="as torch chooses on CUDA")]
GradAccum = Annotated[int | None, _option("grad_accum", _STEP, "Micro-batches per optimizer step.", default="1")]
ClipGradNorm = Annotated[float | None, _option("clip_grad_norm", _STEP, "Clip gradients to this norm.")]
Attention = Annotated[str | None, _option("attention", _STEP, "SDPA kernel.", default="as CUDA chooses")]
Checkpoint = Annotated[
    str | None,
    _option("checkpoint", _STEP, "Activation checkpointing.", default="none", metavar="none|full|FILE"),
]
Mode = Annotated[str | None, _option("mode", _STEP, "What one step is.", default="train")]
MaxNewTokens = Annotated[int | None, _option("max_new_tokens", _STEP, "Tokens decoded by generate.", default="32")]
DataDependent = Annotated[
    str | None,
    _option("data_dependent", _STEP, "Assumption for sizes that depend on values.", default="balanced"),
]

Gpus = Annotated[
    list[str],
    _option("gpu", _DEVICE, "GPU profile, as 'memplan gpus' lists them; repeatable.", metavar="NAME"),
]
ProfileDirs = Annotated[
    list[Path] | None,
    _option("profile_dir", _DEVICE, "Folder of further GPU profiles; repeatable.", metavar="DIR"),
]

Formats = Annotated[
    list[str] | None,
    _option("format", _REPORT, "Report format, to standard output or a file; repeatable.", default="text",
            metavar="text|json[=FILE]", short="-f"),
]  # fmt: skip
AsJson = Annotated[bool, _option("json", _REPORT, "Same as --format json.")]
Explain = Annotated[bool, _option("explain", _REPORT, "Show every assumption and where each value came from.")]
Quiet = Annotated[bool, _option("quiet", _REPORT, "Only the verdict, no progress.", short="-q")]
FailOn = Annotated[
    str | None, _option("fail_on", _REPORT, "Exit 1 at this verdict or a worse one, on any GPU.", default="never")
]
ExitZero = Annotated[bool, _option("exit_zero", _REPORT, "Exit 0 whatever the verdict.")]
