"""Pieces of Python that several formats are made of. What they say must run without memplan."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from memplan.emit import quote, words
from memplan.job.optimizers import TORCH_OPTIMIZERS
from memplan.job.setup_file import Setup
from memplan.job.spec import HubTarget, JobSpec, OptimizerImpl, OptimizerName, PresetTarget
from memplan.runtime.checkpoint.plan_file import read_plan
from memplan.runtime.checkpoint.snippet import stand_alone_code

PLAN_FILE = "checkpoint_plan.py"
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
REPEATED_BLOCKS = '''\
def repeated_blocks(model):
    """Yield the outermost modules whose ModuleList, ModuleDict or Sequential holds another of their class."""
    containers = (nn.ModuleList, nn.ModuleDict, nn.Sequential)

    def is_block(module):
        if type(module).forward is nn.Module.forward or next(module.children(), None) is None:
            return False
        return not isinstance(module, nn.Sequential) or next(repeated_blocks(module), None) is None

    children = list(model.children())
    kinds = [type(child) for child in children if isinstance(model, containers) and is_block(child)]
    for child in children:
        if kinds.count(type(child)) > 1 and is_block(child):
            yield child
        else:
            yield from repeated_blocks(child)
'''
_CHECKPOINT_BLOCKS = '''\
def checkpoint_blocks(model):
    """Let every repeated block keep its inputs alone, and run again in backward."""
    for block in repeated_blocks(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
'''
_OWN_CHECKPOINTING = '''\
SWITCHES = ("activation_checkpointing_enable", "gradient_checkpointing_enable", "enable_gradient_checkpointing")


def checkpoint_blocks(model):
    """Let every repeated block keep its inputs alone, and run again in backward: by its library's switch, if it can."""
    switch = next((name for name in SWITCHES if hasattr(model, name)), None)
    if switch is not None:
        getattr(model, switch)()
        return
    for block in repeated_blocks(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
'''
"""For models of transformers and diffusers, whose own switch was traced: it says what a block is."""


_CACHE_OFF = '''\
def turn_cache_off(model):
    """Do as transformers' Trainer does: a cache of keys and values would live as long as the output."""
    if getattr(getattr(model, "config", None), "use_cache", False):
        model.config.use_cache = False
'''


_CHUNKED_LOSS = '''\
def chunk_loss(model, chunks):
    """Make the logits of so many parts of the tokens one after another, and again in backward.

    The model then takes labels, and returns its loss alone. Nothing ever holds all logits.
    """
    body = getattr(model, model.base_model_prefix)

    def part(hidden, targets):
        logits = model.get_output_embeddings()(hidden).float()
        return functional.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")

    def forward(*, labels, **inputs):
        hidden = body(**inputs)[0]
        targets = functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous().view(-1)
        total = hidden.new_zeros((), dtype=torch.float32)
        parts = hidden.view(-1, hidden.shape[-1]).chunk(chunks)
        for some, their_targets in zip(parts, targets.chunk(chunks), strict=True):
            total = total + checkpoint(part, some, their_targets, use_reentrant=False)
        return CausalLMOutput(loss=total / (targets != -100).sum())

    model.forward = forward
'''
"""``--loss-chunks``, which is there for causal language models of transformers alone."""
_IMPORTS_OF_LOSS = (
    "from torch.nn import functional",
    "from torch.utils.checkpoint import checkpoint",
    "from transformers.modeling_outputs import CausalLMOutput",
)


def checkpoint_function(job: JobSpec) -> str:
    """``checkpoint_blocks(model)``, with the switch that loading a model from its configuration turns in a trace."""
    return _OWN_CHECKPOINTING if is_of_a_library(job) else _CHECKPOINT_BLOCKS


def cache_function(job: JobSpec) -> list[str]:
    """``turn_cache_off(model)`` for models that have a cache of keys and values."""
    return [_CACHE_OFF, ""] if is_of_a_library(job) else []


def loss_function(job: JobSpec) -> list[str]:
    """``chunk_loss(model, chunks)`` where the logits are made in parts."""
    return [_CHUNKED_LOSS, ""] if job.loss_chunks > 1 else []


def is_of_a_library(job: JobSpec) -> bool:
    """Is the model one of transformers or diffusers, made of its configuration?"""
    return isinstance(job.target, HubTarget | PresetTarget)


def docstring(setup: Setup, title: str) -> str:
    """The head as a docstring of a module."""
    return "\n".join([f'"""{title}', "", *map(quote.in_docstring, words.head(setup)), '"""', ""])


def optimizer_function(job: JobSpec) -> str:
    """``make_optimizer(model, lr)``; AdamW where the job names none."""
    name = job.optimizer or "adamw"
    if name in TORCH_OPTIMIZERS:
        kind, options = TORCH_OPTIMIZERS[name]
        more = "".join(f", {key}={value}" for key, value in options.items()) + _IMPLEMENTATIONS[job.optimizer_impl]
        lines = [f"return torch.optim.{kind}(parameters, lr=lr{more})"]
    else:
        module, kind = _OTHER_OPTIMIZERS[name]
        lines = [f"from {module} import {kind}", "", f"return {kind}(parameters, lr=lr)"]
    head = [
        "def make_optimizer(model, lr):",
        '    """Make the optimizer of everything that is trained; call it once the model is set up."""',
        "    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]",
    ]
    return "\n".join([*head, *(f"    {line}".rstrip() for line in lines)]) + "\n"


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


def plan_files(job: JobSpec) -> dict[str, str]:
    """The file that ``apply_plan`` is imported from, where a checkpoint plan is in force.

    Raises:
        UsageError: The plan cannot be read, or names modules by patterns.
    """
    if job.checkpoint in ("none", "full"):
        return {}
    return {PLAN_FILE: stand_alone_code(read_plan(Path(job.checkpoint)))}


def call(function: str, arguments: Iterable[str], indent: int) -> str:
    """A call with one argument on each line.

    Args:
        function: What is called.
        arguments: As code.
        indent: Spaces before the line that the call begins on.
    """
    inside = "".join(f"{' ' * (indent + 4)}{argument},\n" for argument in arguments)
    return f"{function}(\n{inside}{' ' * indent})"


def imports(job: JobSpec, *lines: str) -> str:
    """Import lines: these, and those of ``setup_lines``."""
    more = {
        "none": [],
        "full": ["import functools", "from torch.utils.checkpoint import checkpoint"],
    }.get(job.checkpoint, ["from checkpoint_plan import apply_plan"])
    if job.loss_chunks > 1:
        more = [*more, *_IMPORTS_OF_LOSS]
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
