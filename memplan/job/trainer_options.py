"""Which options of a job transformers' Trainer takes, and what it calls its optimizer. Torch-free."""

from collections.abc import Mapping

from memplan.job.config_files.training_arguments import OPTIM
from memplan.job.parallel import ALONE
from memplan.job.spec import JobSpec


def of_own_loop(spec: JobSpec) -> Mapping[str, bool]:
    """Return the options that shape memplan's own loop alone, and whether each is given."""
    return {
        "--keep-gradients": spec.keep_gradients,
        "--optimizer-in-backward": spec.optimizer_in_backward,
        "--offload-activations": spec.offload_activations,
        "--compress-activations": spec.compress_activations != "none",
        "--replay-buffer": spec.replay_buffer > 0,
    }


def refused(spec: JobSpec) -> tuple[str, ...]:
    """Return the options of a job that Trainer does not do, or decides itself."""
    given = {
        "--mode": spec.mode != "train",
        "--parallel": spec.parallel != ALONE,
        "--loss": spec.loss is not None,
        "--precision fp16 (its scaler needs fp32 weights: fp16-mixed)": spec.precision == "fp16",
        f"--optimizer {spec.optimizer}": spec.optimizer is not None and spec.optimizer not in OPTIM,
        f"--optimizer-impl {spec.optimizer_impl}": optim(spec) is None,
        **of_own_loop(spec),
    }
    return tuple(option for option, is_given in given.items() if is_given)


def optim(spec: JobSpec) -> str | None:
    """What TrainingArguments calls the optimizer; empty: its default; None: it has none of that kind."""
    if spec.optimizer_impl == "auto":
        return "" if spec.optimizer is None else OPTIM.get(spec.optimizer, "")
    if spec.optimizer in (None, "adamw"):
        return {"fused": "adamw_torch_fused", "foreach": "adamw_torch"}.get(spec.optimizer_impl)
    return None
