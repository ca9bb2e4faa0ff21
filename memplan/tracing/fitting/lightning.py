"""A LightningModule trained by Lightning's own Trainer: its ``training_step`` and its ``configure_optimizers``."""

import warnings
from importlib import import_module
from typing import Any, Literal

from torch import nn

from memplan.errors import UsageError
from memplan.job.optimizers import make_optimizer
from memplan.job.parallel import ALONE
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec, Precision
from memplan.job.trainer_options import of_own_loop
from memplan.tracing.fitting.batches import batches_of

PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
"""Top-level package of the class → the module that has its Trainer."""
PRECISIONS: dict[Precision, str] = {
    "fp32": "32-true",
    "fp16": "16-true",
    "bf16": "bf16-true",
    "fp16-mixed": "16-mixed",
    "bf16-mixed": "bf16-mixed",
}
"""Lightning's words (lightning/fabric/plugins/precision)."""
SAID = (
    "the loop is that of lightning.Trainer: training_step, zero_grad, backward, step of what configure_optimizers "
    "returns; gradients live through the next forward"
)
LEFT_ASIDE = "training_step is left aside: nothing says what its batch is; define batch(batch_size)"


def is_lightning(model: nn.Module) -> bool:
    """Is it a LightningModule, of either package?"""
    return _package(model) is not None


def trains_itself(model: nn.Module, source: ModelSource, spec: JobSpec) -> bool:
    """Does Lightning's Trainer train a model? Of a worked-out batch nobody knows whether ``training_step`` takes it.

    A loss or a ``train_step`` of the target's own comes first.
    """
    says_how = source.train_step is not None or (source.loss is not None and not _is_worked_out(source, "loss"))
    has_batches = has_own_batches(model) or not (source.batch is None or _is_worked_out(source, "batch"))
    alone = spec.mode == "train" and spec.parallel == ALONE and spec.loss is None
    return is_lightning(model) and alone and not says_how and has_batches


def has_own_batches(model: nn.Module) -> bool:
    """Has a LightningModule a ``train_dataloader`` of its own?"""
    package = _package(model)
    return package is not None and "train_dataloader" in {
        name for kind in type(model).__mro__ if kind.__module__.partition(".")[0] != package for name in vars(kind)
    }


def fit(model: nn.Module, source: ModelSource, spec: JobSpec, kind: Literal["cuda", "cpu"]) -> None:
    """Train until somebody stops it.

    Raises:
        UsageError: An option asks for what Lightning decides.
    """
    _refuse(spec)
    package = _package(model)
    assert package is not None  # noqa: S101 - the caller asked.
    lightning: Any = import_module(PACKAGES[package])
    if spec.optimizer is not None:
        model.configure_optimizers = lambda: make_optimizer(  # type: ignore[assignment]
            spec.optimizer or "adamw", [each for each in model.parameters() if each.requires_grad]
        )
    with warnings.catch_warnings():
        # Of few workers, of no logger, of no validation: nothing that the step takes.
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            accelerator="cpu" if kind == "cpu" else "gpu",
            devices=1,
            precision=PRECISIONS[spec.precision],
            accumulate_grad_batches=spec.grad_accum,
            gradient_clip_val=spec.clip_grad_norm,
            max_epochs=-1,
            limit_val_batches=0,
            num_sanity_val_steps=0,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        loader = batches_of(source, spec) if source.batch is not None else None
        trainer.fit(model, loader)


def _package(model: nn.Module) -> str | None:
    """The top-level package of Lightning's class among a model's."""
    names = (kind.__module__.partition(".")[0] for kind in type(model).__mro__ if kind.__name__ == "LightningModule")
    return next((name for name in names if name in PACKAGES), None)


def _is_worked_out(source: ModelSource, part: str) -> bool:
    return source.provenance.get(part, "").startswith("worked-out")


def _refuse(spec: JobSpec) -> None:
    """What shapes only memplan's own loop must not look as if it had shaped Lightning's."""
    given = {
        "--optimizer-impl": spec.optimizer_impl != "auto",
        **of_own_loop(spec),
    }
    useless = ", ".join(option for option, is_given in given.items() if is_given)
    if useless:
        raise UsageError(f"{useless} would change nothing: the model trains by its own training_step")
