"""Options that several commands share, as groups: a command takes a group as one parameter, the user sees its options.

@spread
def estimate(target: options.Target, *, gpu: options.Gpus, job: JobOptions, report: ReportOptions) -> None: ...
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from memplan.cli import options
from memplan.job.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What a step of a target is, beside the target itself; all of it but the time limit is a field of ``JobSpec``."""

    allow_network: options.AllowNetwork = False
    trust_remote_code: options.TrustRemoteCode = False
    timeout: options.Timeout = options.DEFAULT_TIMEOUT
    config: options.Config = None
    batch_size: options.BatchSize = None
    seq_len: options.SeqLen = None
    inputs: options.Inputs = None
    precision: options.Precision = None
    optimizer: options.Optimizer = None
    optimizer_impl: options.OptimizerImpl = None
    grad_accum: options.GradAccum = None
    clip_grad_norm: options.ClipGradNorm = None
    attention: options.Attention = None
    checkpoint: options.Checkpoint = None
    parallel: options.Parallel = None
    lora: options.Lora = None
    quantize: options.Quantize = None
    float8: options.Float8 = None
    loss_chunks: options.LossChunks = None
    optimizer_in_backward: options.OptimizerInBackward = False
    offload_activations: options.OffloadActivations = False
    compress_activations: options.CompressActivations = None
    data_workers: options.DataWorkers = None
    prefetch: options.Prefetch = None
    pin_memory: options.PinMemory = False
    replay_buffer: options.ReplayBuffer = None
    replay_buffer_on: options.ReplayBufferOn = None
    compile: options.Compile = None
    mode: options.Mode = None
    max_new_tokens: options.MaxNewTokens = None
    kv_block_size: options.KvBlockSize = None
    data_dependent: options.DataDependent = None

    def given(self) -> dict[str, Any]:
        """Field of ``JobSpec`` → value, of what was typed."""
        return {name: getattr(self, name) for name in JOB_FIELDS if is_given(getattr(self, name))}

    def typed(self) -> tuple[str, ...]:
        """Names of all that was typed of the job, files included."""
        return (*(["config"] if self.config else []), *self.given())


JOB_FIELDS = tuple(
    field.name for field in fields(JobOptions) if field.name in {known.name for known in fields(JobSpec)}
)
"""Fields of ``JobSpec`` that options set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Which reports are written, and how much they say."""

    formats: options.Formats = None
    as_json: options.AsJson = False
    explain: options.Explain = False
    quiet: options.Quiet = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(ReportOptions):
    """The same for commands that export memory histories too."""

    formats: options.FormatsOfEstimate = None


def is_given(value: object) -> bool:
    """Was an option without a default typed?"""
    return value is not None and value is not False and value != []


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups: Typer, which reads a command's options from its signature, sees theirs instead.

    Args:
        command: Each of its parameters that is annotated with a dataclass is a group, whose fields are options.
    """
    signature = inspect.signature(command)
    annotations = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    groups: dict[str, Any] = {name: kind for name, kind in annotations.items() if is_dataclass(kind)}

    @functools.wraps(command)
    def taking_options(**typed: Any) -> None:
        made = {
            name: group(**{field.name: typed.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**typed, **made)

    parameters = [option for parameter in signature.parameters.values() for option in _options_of(parameter)]
    vars(taking_options)["__signature__"] = signature.replace(parameters=parameters)
    return taking_options


def _options_of(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    if not is_dataclass(parameter.annotation):
        yield parameter
        return
    for field in fields(parameter.annotation):
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(field.name, kind, default=field.default, annotation=field.type)
