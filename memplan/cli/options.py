"""Options of more than one command, each declared once for Typer; ``memplan.cli.groups`` puts them together.

A job's options default to None, so that what was typed can be told from what was not; the defaults themselves stand in
``JobSpec``. Choices are checked in ``memplan.cli.check``, together with everything else. Options of one command alone
stand in its file and are made by ``option`` too.
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

TARGET, STEP, DEVICE, REPORT = "Target", "Step", "Device", "Report"
"""Panels of ``--help``."""


_FLAGS: Mapping[str, str] = {"inputs": "--input", "formats": "--format", "as_json": "--json"}
"""Parameter → its option, where it is called otherwise: an option that is repeated names one of its values."""


def flag(name: str) -> str:
    """The option that sets a parameter: ``batch_size`` → ``--batch-size``."""
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


def option(
    name: str, panel: str | None, help_text: str, *, metavar: str | None = None, default: str = "", short: str = ""
) -> Any:
    """What Typer is told of an option.

    Args:
        name: The parameter that it sets; ``flag`` says how it is typed, ``CHOICES`` which words it takes.
        panel: Where ``--help`` lists it; None is with the options that have no panel.
        help_text: What it does.
        metavar: What stands for its value; None for a switch.
        default: Its default, in words.
        short: Its one-letter form.
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
    option("timeout", TARGET, "Limit for running the target's code.", metavar="SECONDS", default="600"),
]

BatchSize = Annotated[int | None, option("batch_size", STEP, "Samples per micro-batch.", metavar="N", default="1")]
SeqLen = Annotated[int | None, option("seq_len", STEP, "Tokens per sample.", metavar="N", default="the target's own")]
Inputs = Annotated[
    list[str] | None,
    option("inputs", STEP, "A model input; B is the batch size, S the sequence length. Repeatable.",
           metavar="NAME=DTYPE[DIMS]"),
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
Compile = Annotated[
    str | None,
    option("compile", STEP, "How what torch.compile compiles, else the whole model, runs: as written, or as Inductor "
           "compiles it:", metavar="NAME", default="eager"),
]  # fmt: skip
Mode = Annotated[str | None, option("mode", STEP, "What one step is:", metavar="NAME", default="train")]
MaxNewTokens = Annotated[
    int | None, option("max_new_tokens", STEP, "Tokens decoded by generate.", metavar="N", default="32")
]
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
AsJson = Annotated[bool, option("as_json", REPORT, "Same as --format json.")]
JsonAlone = Annotated[bool, option("as_json", None, "Write JSON instead of the table.")]
Explain = Annotated[bool, option("explain", REPORT, "Show every assumption and where each value came from.")]
Quiet = Annotated[bool, option("quiet", REPORT, "Only the verdict, no progress.", short="-q")]
FailOn = Annotated[
    str | None,
    option("fail_on", REPORT, "Exit 1 at this verdict or a worse one:", metavar="VERDICT", default="never"),
]
ExitZero = Annotated[bool, option("exit_zero", REPORT, "Exit 0 whatever the verdict.")]
