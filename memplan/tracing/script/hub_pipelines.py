"""Diffusers' models and schedulers of the hub: built from configurations that are known here, without weights."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from memplan.errors import EstimateError
from memplan.job.huggingface.materialise import build
from memplan.job.presets.pipelines import parts_of

Assume = Callable[[str], None]
_HINT = "give the program a folder with its parts, or a Stable Diffusion 1, 2 or XL by its name on the hub"


def configurations(module: ModuleType, stack: ExitStack, assume: Assume) -> None:
    """Let configurations be read from this disk, else be those of the pipeline of that name."""
    real = vars(module.ConfigMixin)["load_config"].__func__

    def load_config(cls: Any, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        name, folder = str(pretrained_model_name_or_path), kwargs.get("subfolder") or ""
        if Path(name).exists():
            return real(cls, name, *args, **kwargs)
        part = parts_of(name).get(folder)
        if part is None:
            raise EstimateError(f"{name} is not on this disk, and its {folder or 'parts'} not known here", hint=_HINT)
        assume(f"{folder or cls.__name__} of {name} is built from its configuration, without its weights")
        asks_rest, asks_commit = kwargs.pop("return_unused_kwargs", False), kwargs.pop("return_commit_hash", False)
        rest = {key: value for key, value in kwargs.items() if key not in _OF_READING}
        answers = ({**part}, *([rest] if asks_rest else []), *([None] if asks_commit else []))
        return answers if len(answers) > 1 else answers[0]

    stack.enter_context(mock.patch.object(module.ConfigMixin, "load_config", classmethod(load_config)))


def models(module: ModuleType, stack: ExitStack, assume: Assume) -> None:
    """Let models be built from their configuration, in the type that is asked for."""

    def from_pretrained(cls: Any, /, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        name = pretrained_model_name_or_path
        if kwargs.get("quantization_config") is not None:
            raise EstimateError("from_pretrained() of diffusers with quantised weights is not played")
        dtype, device = kwargs.get("dtype", kwargs.get("torch_dtype")), kwargs.get("device_map")
        of_reading = {key: value for key, value in kwargs.items() if key not in _OF_LOADING}
        config, rest = cls.load_config(name, return_unused_kwargs=True, **of_reading)
        if Path(str(name)).is_dir():
            assume(f"weights in {name} are not read")
        model: Any = build(lambda: cls.from_config(config, **rest))
        model.eval()
        model.register_to_config(_name_or_path=str(name))
        model = model if dtype is None else model.to(dtype)
        model = model if device in (None, "cpu") else model.to("cuda")
        return (model, {"missing_keys": []}) if kwargs.get("output_loading_info") else model

    stack.enter_context(mock.patch.object(module.ModelMixin, "from_pretrained", classmethod(from_pretrained)))


_OF_READING = frozenset({
    "cache_dir", "local_dir", "local_dir_use_symlinks", "force_download", "proxies", "token", "local_files_only",
    "revision", "mirror", "subfolder", "user_agent",
})  # fmt: skip
"""Arguments that reading a configuration takes up (diffusers, configuration_utils.py, load_config)."""
_OF_LOADING = frozenset({
    "ignore_mismatched_sizes", "output_loading_info", "torch_dtype", "dtype", "device_map", "max_memory",
    "offload_folder", "offload_state_dict", "low_cpu_mem_usage", "variant", "use_safetensors", "quantization_config",
    "disable_mmap", "use_flashpack", "flashpack_kwargs", "parallel_config",
})  # fmt: skip
"""Arguments that say nothing of the configuration (diffusers, models/modeling_utils.py, from_pretrained)."""
