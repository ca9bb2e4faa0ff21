"""Checks before the first step of Lightning's and transformers' loops: will the step that is about to run fit?

The batch and the model are those at hand, the loop's own settings count. Each library is imported where its callback is
made, and memplan's tracer where it checks.
"""

import logging
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from memplan.errors import MemplanError, UsageError
from memplan.measure.records import Verdict
from memplan.runtime.monitor.callbacks import lightning_library, transformers_library

if TYPE_CHECKING:
    from memplan.api.estimates import LiveEstimate

OnOom = Literal["raise", "warn"]
"""What a prediction that a step runs out of memory does."""


class PredictedOutOfMemoryError(MemplanError, MemoryError):
    """The step that is about to run is predicted not to fit: nothing of it has run."""


def lightning_check(*, gpu: str | None = None, on_oom: OnOom = "raise", **options: Any) -> Any:
    """Return a ``Callback`` for ``lightning.Trainer(callbacks=[...])`` that estimates the first step before it runs.

    Args:
        gpu: A profile, as ``memplan gpus`` lists them; None: that of the card at hand, without one the CPU's.
        on_oom: ``"raise"`` a ``PredictedOutOfMemoryError``, or ``"warn"``. A tight fit, and a step that cannot be
            traced, are warnings always.
        options: Further options, as of ``memplan.estimate``; they win over the trainer's.

    Returns:
        The callback; its ``estimate`` is the answer, None before it is there.

    Raises:
        UsageError: Lightning is not installed.
    """

    class MemoryCheckCallback(lightning_library().Callback):  # type: ignore[misc]
        """Estimates the first training step of each fit."""

        estimate: "LiveEstimate | None" = None

        def on_train_start(self, *_: Any, **__: Any) -> None:
            """Begin anew: a model may be trained twice."""
            self.estimate, self._is_checked = None, False

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, *_: Any) -> None:
            """Check once, with the batch that is about to be trained on."""
            if not self._is_checked:
                self._is_checked = True
                asked = {**_of_lightning(trainer), **options}
                self.estimate = checked(pl_module, batch, gpu, on_oom, asked)

    return MemoryCheckCallback()


def transformers_check(*, gpu: str | None = None, on_oom: OnOom = "raise", **options: Any) -> Any:
    """Return a ``TrainerCallback`` for ``transformers.Trainer(callbacks=[...])`` that checks before the first step.

    It waits for the first forward of training, whose batch it takes: no data loader is asked for one more.

    Args:
        gpu: As of ``lightning_check``, and so the others.
        on_oom: As there.
        options: As there.

    Returns:
        The callback; its ``estimate`` is the answer, None before it is there.

    Raises:
        UsageError: transformers is not installed.
    """

    class MemoryCheckCallback(transformers_library().TrainerCallback):  # type: ignore[misc]
        """Estimates the first training step of each run."""

        estimate: "LiveEstimate | None" = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            """Wait for the model's first forward in training."""
            del state, control
            model, optimizer = parts["model"], parts.get("optimizer")
            asked = {"optimizer": getattr(optimizer, "optimizer", optimizer), **_of_transformers(args), **options}
            self.estimate = None

            def check(module: Any, positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
                if module.training:
                    self._waiting.remove()
                    self.estimate = checked(module, dict(keywords) or positional, gpu, on_oom, asked)

            self._waiting = model.register_forward_pre_hook(check, with_kwargs=True)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            """Stop waiting: there may have been nothing to train."""
            self._waiting.remove()

    return MemoryCheckCallback()


def checked(
    model: Any, batch: Any, gpu: str | None, on_oom: OnOom, options: Mapping[str, Any]
) -> "LiveEstimate | None":
    """Estimate a step that is about to run, and tell where it does not fit.

    Args:
        model: The model.
        batch: What it is trained on.
        gpu: A profile; None: the card at hand.
        on_oom: What a step does that does not fit.
        options: As of ``memplan.estimate``.

    Returns:
        The estimate; None where there is none, which is told.

    Raises:
        PredictedOutOfMemoryError: It does not fit.
    """
    from memplan.api.estimates import estimate

    quiet = logging.root.manager.disable
    # The loop that is traced says again what the one that waits has said.
    logging.disable(logging.INFO)
    try:
        answer = estimate(model, batch, gpu=gpu or card_at_hand(), **options)
    except MemplanError as error:
        warnings.warn(f"memplan could not check this step before it runs: {error}", stacklevel=2)
        return None
    finally:
        logging.disable(quiet)
    if answer.verdict is not Verdict.FITS:
        # The verdict, and what would make it fit.
        told = "memplan predicts, before the first step: " + str(answer).partition("\n\n")[0]
        if answer.verdict is Verdict.OOM and on_oom == "raise":
            raise PredictedOutOfMemoryError(told, hint="on_oom='warn' lets the step run")
        warnings.warn(told, stacklevel=2)
    return answer


def card_at_hand() -> str:
    """Return the name of the GPU that this process uses, by which profiles are found; ``cpu`` where it has none.

    Raises:
        UsageError: It is a card that no profile is known of.
    """
    import torch

    from memplan.hardware.catalog import load_profile

    if not torch.cuda.is_available():
        return "cpu"
    name = torch.cuda.get_device_name()
    try:
        return load_profile(name).name
    except UsageError as error:
        raise UsageError(f"no profile is known of the card at hand, {name}", hint="name one: gpu=") from error


def _of_lightning(trainer: Any) -> dict[str, Any]:
    """Return the options of a job that a trainer of Lightning has."""
    from memplan.tracing.fitting.lightning import PRECISIONS

    named = {word: name for name, word in PRECISIONS.items()}
    clips = trainer.gradient_clip_val and trainer.gradient_clip_algorithm != "value"
    return {
        # Another one is refused by name.
        "precision": named.get(trainer.precision, trainer.precision),
        "grad_accum": trainer.accumulate_grad_batches,
        **({"clip_grad_norm": float(trainer.gradient_clip_val)} if clips else {}),
    }


def _of_transformers(args: Any) -> dict[str, Any]:
    """Return the options of a job that ``TrainingArguments`` have; the model has its checkpointing itself."""
    return {
        "precision": "bf16-mixed" if args.bf16 else "fp16-mixed" if args.fp16 else "fp32",
        "grad_accum": args.gradient_accumulation_steps,
        **({"clip_grad_norm": float(args.max_grad_norm)} if args.max_grad_norm else {}),
    }
