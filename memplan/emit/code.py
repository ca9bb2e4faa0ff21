"""Pieces of Python that several formats are made of. What they say must run without memplan."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from memplan.emit import functions, quote
from memplan.job.config_files.code import NAME
from memplan.job.optimizers import TORCH_OPTIMIZERS
from memplan.job.setup_file import JOB
from memplan.job.spec import HubTarget, JobSpec, OptimizerImpl, OptimizerName, PresetTarget
from memplan.runtime.checkpoint.plan_file import plan_text, read_plan
from memplan.runtime.checkpoint.snippet import stand_alone_code

PLAN_FILE = "checkpoint_plan.py"
PLAN = "checkpoint_plan.json"
"""The same plan, for memplan to read."""
DTYPES: Mapping[str, str] = {
    "fp16": "torch.float16", "bf16": "torch.bfloat16", "fp16-mixed": "torch.float16", "bf16-mixed": "torch.bfloat16",
}  # fmt: skip
"""Precision → the 16-bit dtype in it."""
_IMPLEMENTATIONS: Mapping[OptimizerImpl, str] = {
    "auto": "",
    "foreach": ", foreach=True",
    "fused": ", fused=True",
    "loop": ", foreach=False",
}
_OTHER_OPTIMIZERS: Mapping[OptimizerName, tuple[str, str]] = {
    "lion": ("lion_pytorch", "Lion"),
    "adamw-8bit": ("bitsandbytes.optim", "AdamW8bit"),
    "paged-adamw-8bit": ("bitsandbytes.optim", "PagedAdamW8bit"),
}
"""Optimizer → module and class."""
_IMPORTS_OF_LOSS = (
    "from torch.nn import functional",
    "from torch.utils.checkpoint import checkpoint",
    "from transformers.modeling_outputs import CausalLMOutput",
)


def checkpoint_function(job: JobSpec) -> str:
    """``checkpoint_blocks(model)``, with the switch that loading a model from its configuration turns in a trace."""
    return functions.OWN_CHECKPOINTING if is_of_a_library(job) else functions.CHECKPOINT_BLOCKS


def is_of_a_library(job: JobSpec) -> bool:
    """Is the model one of transformers or diffusers, made of its configuration?"""
    return isinstance(job.target, HubTarget | PresetTarget)


def own_functions(job: JobSpec) -> list[str]:
    """All functions and classes that the setup of a model and its optimizer need, each with a blank line behind it."""
    pieces = [functions.REPEATED_BLOCKS, checkpoint_function(job)] if job.checkpoint == "full" else []
    pieces += [functions.CACHE_OFF] if is_of_a_library(job) else []
    pieces += [functions.CHUNKED_LOSS] if job.loss_chunks > 1 else []
    pieces += [functions.OFFLOAD] if job.offload_activations else []
    pieces += [functions.IN_BACKWARD] if job.optimizer_in_backward else []
    return [line for piece in pieces for line in (piece, "")]


def docstring(head: Sequence[str], title: str) -> str:
    """Lines of a head as a docstring of a module."""
    return "\n".join([f'"""{title}', "", *map(quote.in_docstring, head), '"""', ""])


def carried(job: JobSpec, names: Collection[str]) -> str:
    """What a file carries, as a literal that ``--config`` reads back.

    The job has the values that the file gives; no optimizer is AdamW.
    """
    is_planned = job.checkpoint not in ("none", "full")
    plain = JOB.plain(
        replace(job, optimizer=job.optimizer or "adamw", checkpoint=PLAN if is_planned else job.checkpoint)
    )
    lines = "".join(f"    {name!r}: {quote.python(plain[name])},\n" for name in sorted(names))
    return f'{NAME} = {{\n{lines}}}\n"""What this file carries of a job; memplan takes it as --config."""\n'


def optimizer_function(job: JobSpec) -> str:
    """``make_optimizer(model, lr)``; AdamW where the job names none."""
    name = job.optimizer or "adamw"
    lines: list[str] = []
    if name in TORCH_OPTIMIZERS:
        kind, options = TORCH_OPTIMIZERS[name]
        more = "".join(f", {key}={value}" for key, value in options.items()) + _IMPLEMENTATIONS[job.optimizer_impl]
        made = f"torch.optim.{kind}({{}}, lr=lr{more})"
    else:
        module, kind = _OTHER_OPTIMIZERS[name]
        lines = [f"from {module} import {kind}", ""]
        made = f"{kind}({{}}, lr=lr)"
    in_backward = f"InBackward(parameters, lambda one: {made.format('one')})"
    lines.append(f"return {in_backward if job.optimizer_in_backward else made.format('parameters')}")
    head = [
        "def make_optimizer(model, lr):",
        '    """Make the optimizer of everything that is trained; call it once the model is set up."""',
        "    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]",
    ]
    return "\n".join([*head, *(f"    {line}".rstrip() for line in lines)]) + "\n"


def compile_lines(job: JobSpec) -> list[str]:
    """What compiles a model, if anything does."""
    backend = "" if job.compile == "inductor" else f'backend="{job.compile}"'
    return [] if job.compile == "eager" else [f"model.compile({backend})"]


def setup_lines(job: JobSpec) -> list[str]:
    """What is done to a model before it is shared: no cache, cast, checkpointing, loss in parts, adapters.

    Adapters come last: peft makes those of a half-precision model fp32, asks for checkpointing, and changes the names
    that a plan has.
    """
    lines = ["turn_cache_off(model)"] if is_of_a_library(job) else []
    lines += [f"model = model.to({DTYPES[job.precision]})"] if job.precision in ("fp16", "bf16") else []
    if job.checkpoint != "none":
        lines.append("checkpoint_blocks(model)" if job.checkpoint == "full" else "apply_plan(model)")
    if job.loss_chunks > 1:
        lines.append(f"chunk_loss(model, {job.loss_chunks})")
    if job.lora is not None:
        lines += ["from peft import LoraConfig, get_peft_model", "", f"model = get_peft_model(model, {_lora(job)})"]
    return lines


def optimizer_note(job: JobSpec) -> Iterator[str]:
    """A sentence where the setup leaves the optimizer to its target."""
    if job.optimizer is None:
        yield "optimizer: the setup names none, AdamW is written"


def plan_files(job: JobSpec) -> dict[str, str]:
    """The file that ``apply_plan`` is imported from, where a checkpoint plan is in force, and the plan itself.

    Raises:
        UsageError: The plan cannot be read, or names modules by patterns.
    """
    if job.checkpoint in ("none", "full"):
        return {}
    plan = read_plan(Path(job.checkpoint))
    return {PLAN_FILE: stand_alone_code(plan), PLAN: plan_text(plan)}


def call(function: str, arguments: Iterable[str], indent: int) -> str:
    """A call with one argument on each line, behind so many spaces."""
    inside = "".join(f"{' ' * (indent + 4)}{argument},\n" for argument in arguments)
    return f"{function}(\n{inside}{' ' * indent})"


def imports(job: JobSpec, *lines: str) -> str:
    """Import lines: these, and those of ``setup_lines``."""
    more = {
        "none": [],
        "full": ["import functools", "from torch.utils.checkpoint import checkpoint"],
    }.get(job.checkpoint, ["from checkpoint_plan import apply_plan"])
    more = [*more, "from torch import nn"] if job.checkpoint == "full" else more
    more = [*more, *_IMPORTS_OF_LOSS] if job.loss_chunks > 1 else more
    more = [*more, "from collections import deque", "from weakref import WeakSet"] if job.offload_activations else more
    plain = sorted({"import torch", *lines, *more}, key=lambda line: (line.startswith("from"), line))
    is_from = [line for line in plain if line.startswith("from")]
    return "\n".join([*(line for line in plain if line not in is_from), "", *is_from, ""])


def _lora(job: JobSpec) -> str:
    lora = job.lora
    if lora is None:
        return ""
    if lora.config is not None:
        return f"LoraConfig(**{quote.python(dict(lora.config))})"
    targets = "all-linear" if lora.targets == ("all-linear",) else list(lora.targets)
    return (
        f"LoraConfig(r={lora.rank}, lora_alpha={quote.python(lora.alpha)}, lora_dropout={quote.python(lora.dropout)}, "
        f"target_modules={quote.python(targets)}, use_dora={lora.dora})"
    )
