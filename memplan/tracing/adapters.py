"""``--lora``: low-rank adapters put on a model by peft itself, as a training script does.

The model stays what it was, with adapters inside: peft's wrapper, which only forwards calls, is taken off again, so
that modules keep their names and the model its signature. What peft decides stays decided: which layers are meant,
that the base is frozen, that adapters of a half-precision model are fp32 (``autocast_adapter_dtype``), and that the
output of the input embeddings requires a gradient where blocks are checkpointed.
"""

import importlib
import importlib.util
from types import ModuleType
from typing import Any

import torch

from memplan.errors import UsageError
from memplan.job.adapters import Lora
from memplan.job.noise import quiet
from memplan.job.usercode import user_code
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.late_imports import outside_trace

NON_REENTRANT = {"use_reentrant": False}
"""What the Trainer of transformers passes (trainer.py, 5.0); prepared without it, torch would re-enter."""


EXTRA = "memplan[adapters]"
"""What brings peft and bitsandbytes, for pip."""


def add_adapters(model: torch.nn.Module, lora: Lora, *, trains: bool, checkpoints: bool) -> torch.nn.Module:
    """Freeze a model and put adapters beside its layers.

    Args:
        model: The model, in the dtypes that its frozen weights shall have; changed in place.
        lora: The adapters.
        trains: Are they trained?
        checkpoints: Does the model checkpoint its blocks by its own switch? peft asks before it prepares the model.

    Returns:
        The model.

    Raises:
        UsageError: peft is not installed, or has no place for the adapters.
        EstimateError: peft cannot work on this model.
    """
    peft = required("peft", "--lora", EXTRA)
    with quiet(), user_code("peft"):
        if trains and lora.prepare and is_prepared(model):
            peft.prepare_model_for_kbit_training(model, checkpoints, gradient_checkpointing_kwargs=NON_REENTRANT)
        try:
            adapted = peft.get_peft_model(model, configuration(peft, lora, trains=trains))
        except (ValueError, TypeError) as error:
            raise UsageError(f"peft: {error}", where=f"--lora {lora}", hint="name modules of the model") from error
    base: torch.nn.Module = adapted.get_base_model()
    return base


def is_prepared(model: torch.nn.Module) -> bool:
    """Do programs prepare it with ``prepare_model_for_kbit_training``? Quantised models of transformers, it says."""
    quantised = getattr(model, "is_loaded_in_4bit", False) or getattr(model, "is_loaded_in_8bit", False)
    return quantised and any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__)


def configuration(peft: ModuleType, lora: Lora, *, trains: bool) -> Any:
    """The adapters as peft is told of them.

    Args:
        peft: The package.
        lora: The adapters.
        trains: A configuration that was saved says that they are not; a step that trains has to say that they are.
    """
    if lora.config is not None:
        # Other starting values (pissa, loftq) take the same memory, and read weights that a trace does not have.
        changed = {"inference_mode": not trains, "init_lora_weights": True}
        return peft.PeftConfig.from_peft_type(**{**lora.config, **changed})
    single = lora.targets[0] if lora.targets == ("all-linear",) else None
    return peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=single or list(lora.targets),
        lora_dropout=lora.dropout,
        use_dora=lora.dora,
        inference_mode=not trains,
    )


def described(model: torch.nn.Module, lora: Lora) -> str:
    """A sentence for the report."""
    count = sum(hasattr(module, "lora_A") for module in model.modules())
    kind = "DoRA" if lora.dora else "LoRA"
    dtypes = {str(each.dtype).removeprefix("torch.") for name, each in model.named_parameters() if "lora_A" in name}
    return f"{kind} of rank {lora.rank} beside {count} layers, in {' and '.join(sorted(dtypes))}; all else is frozen"


def required(package: str, option: str, name: str) -> ModuleType:
    """An optional package, imported as if there were no trace.

    Args:
        package: What is imported.
        option: What needs it.
        name: What ``pip install`` calls it.

    Raises:
        UsageError: It is not there.
    """
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"{option} needs {package}", where=option, hint=f"pip install '{name}'")
    with outside_trace(), quiet(), replaced((Replacement("torch.compile", _uncompiled),)):
        return importlib.import_module(package)


def _uncompiled(function: Any = None, **_: Any) -> Any:
    """``torch.compile`` of functions that a package decorates: that these exist is no choice of the job's."""
    return _uncompiled if function is None else function
