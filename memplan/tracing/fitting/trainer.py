"""Models of transformers trained by its own Trainer (``--loop trainer``): its step, its optimizer, its defaults."""

from typing import Any, Literal

from torch import nn

from memplan.errors import UsageError
from memplan.files.scratch import scratch_folder
from memplan.job.huggingface.build import require
from memplan.job.source import ModelSource
from memplan.job.spec import HubTarget, JobSpec, PresetTarget
from memplan.job.trainer_options import optim, refused
from memplan.job.usercode import user_code
from memplan.tracing.adapters import EXTRA, required
from memplan.tracing.fitting.batches import ENDLESS

BATCHES = 1000
"""Of an epoch, whose samples are shuffled as a tensor of so many numbers."""
SAID = (
    "the loop is that of transformers.Trainer: autocast by bf16=True or fp16=True, no output outlives its loss, "
    "gradients are clipped to max_grad_norm (1.0, unless --clip-grad-norm says otherwise)"
)


def check(model: nn.Module, source: ModelSource, spec: JobSpec) -> None:
    """Refuse what Trainer does not do, or decides itself.

    Raises:
        UsageError: The target or an option is of that kind.
    """
    require("accelerate", where="--loop trainer")
    from transformers import PreTrainedModel

    hosts = (getattr(model, "base_model", model), getattr(getattr(model, "base_model", model), "model", model), model)
    is_known = isinstance(spec.target, HubTarget | PresetTarget) and source.loss is None
    if not is_known or not any(isinstance(each, PreTrainedModel) for each in hosts):
        raise UsageError("--loop trainer is for models of transformers: hf: and preset: targets", where="--loop")
    useless = ", ".join(refused(spec))
    if useless:
        hint = "leave --loop out, or estimate the program that does it: memplan estimate train.py -- ARGS"
        raise UsageError(f"--loop trainer does not take {useless}", where="--loop", hint=hint)


def fit(model: nn.Module, source: ModelSource, spec: JobSpec, kind: Literal["cuda", "cpu"]) -> None:
    """Train until somebody stops it.

    Raises:
        UsageError: Trainer wants a package that is not installed.
    """
    # What its modules do when they are imported (loggers looked for, functions compiled) is nobody's step.
    required("transformers.trainer", "--loop trainer", "transformers")
    from transformers import Trainer, TrainingArguments

    make = source.batch
    assert make is not None  # noqa: S101 - targets of transformers have batches.

    def collate(rows: list[Any]) -> Any:
        with user_code("batch()"):
            return make(len(rows), spec.seq_len or source.default_seq_len)

    asked: dict[str, Any] = {"max_grad_norm": spec.clip_grad_norm, "optim": optim(spec) or None}
    # What nobody asked for is Trainer's own.
    asked = {name: value for name, value in asked.items() if value is not None}
    with scratch_folder() as folder:
        arguments = TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=spec.batch_size,
            gradient_accumulation_steps=spec.grad_accum,
            max_steps=ENDLESS,
            use_cpu=kind == "cpu",
            bf16=spec.precision in ("bf16", "bf16-mixed"),
            fp16=spec.precision == "fp16-mixed",
            remove_unused_columns=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            **asked,
        )
        rows: Any = [{}] * (spec.batch_size * BATCHES)
        try:
            Trainer(model=model, args=arguments, data_collator=collate, train_dataset=rows).train()
        except ImportError as error:
            # It asks for what an optimizer needs when it makes it.
            named = f"--optimizer {spec.optimizer}" if spec.optimizer else "--loop trainer"
            raise UsageError(f"Trainer lacks a package: {error}", where=named, hint=f"pip install '{EXTRA}'") from error
