"""Models and tokenizers of Hugging Face's hub: built from configurations that are known here, without weights."""

import copy
import importlib.metadata
import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal
from unittest import mock

from memplan.errors import EstimateError
from memplan.job.huggingface.materialise import build
from memplan.job.presets import Preset
from memplan.job.presets.hub_names import preset_of
from memplan.job.presets.pipelines import parts_of
from memplan.tracing.quantize import quantize
from memplan.tracing.script.hub_processors import processors
from memplan.tracing.script.hub_tokenizers import tokenizers

Assume = Callable[[str], None]
NOT_SAVED = "weights are not saved: there are none"


def transformers_hub(module: ModuleType, stack: ExitStack, assume: Assume) -> None:
    """Let ``from_pretrained`` of transformers' models, configurations and tokenizers find what the hub would have."""
    stack.enter_context(mock.patch.dict("os.environ", {"HF_HUB_OFFLINE": "1"}))
    import huggingface_hub.constants

    stack.enter_context(mock.patch.object(huggingface_hub.constants, "HF_HUB_OFFLINE", True))
    configurations = getattr(module, "PreTrainedConfig", None) or module.PretrainedConfig
    for kind, name, make in (
        (configurations, "get_config_dict", _config_dict),
        (module.PreTrainedModel, "from_pretrained", _model),
    ):
        real = vars(kind)[name].__func__
        stack.enter_context(mock.patch.object(kind, name, classmethod(make(real, assume))))
    stack.enter_context(mock.patch.object(module.PreTrainedModel, "save_pretrained", _saving(assume)))
    tokenizers(module, stack, assume, _preset)
    processors(module, stack, assume, _preset, module.AutoTokenizer.from_pretrained)


def _saving(assume: Assume) -> Any:
    def save_pretrained(model: Any, save_directory: Any, *_: Any, **__: Any) -> None:
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        model.config.save_pretrained(folder)
        (folder / "model.safetensors").write_bytes(b"")
        assume(NOT_SAVED)

    return save_pretrained


def safetensors_files(module: ModuleType, stack: ExitStack, assume: Assume) -> None:
    """Let ``safetensors``, which writes outside of Python, leave an empty file."""

    def save(_: Any, filename: Any, *__: Any, **___: Any) -> None:
        Path(filename).write_bytes(b"")
        assume(NOT_SAVED)

    for name in ("save_file", "save_model"):
        stack.enter_context(mock.patch.object(module, name, save))


def older_trainer(module: ModuleType, stack: ExitStack, assume: Assume) -> None:
    """Let scripts for transformers 4 name the tokenizer as they do."""
    begin = module.Trainer.__init__

    def made(trainer: Any, *args: Any, **kwargs: Any) -> None:
        if "tokenizer" in kwargs and "processing_class" in inspect.signature(begin).parameters:
            assume("Trainer(tokenizer=…) is called processing_class by the installed transformers, and is taken for it")
            kwargs["processing_class"] = kwargs.pop("tokenizer")
        begin(trainer, *args, **kwargs)

    stack.enter_context(mock.patch.object(module.Trainer, "__init__", made))


def older_accelerate(module: ModuleType, stack: ExitStack, _: Assume) -> None:
    """Let scripts for accelerate before 0.26 ask for a TPU as they do: what is played is none."""
    kinds = module.DistributedType
    if not hasattr(kinds, "TPU"):
        stack.enter_context(mock.patch.object(kinds, "TPU", kinds.XLA, create=True))


def _config_dict(real: Any, assume: Assume) -> Any:
    def get_config_dict(cls: type, name: Any, **kwargs: Any) -> Any:
        try:
            return real(cls, name, **{**kwargs, "local_files_only": True})
        except (OSError, ValueError):
            part = parts_of(str(name)).get(kwargs.get("subfolder") or "")
            if part is not None:
                assume(f"{kwargs['subfolder']} of {name} is built from its configuration, without its weights")
                return {**part, "_name_or_path": str(name)}, _of_configuration(kwargs)
            preset = _preset(name)
        import transformers

        config_class = getattr(transformers, preset.config_class or "", None)
        if config_class is None:
            raise EstimateError(f"{name} is no model of transformers") from None
        config = config_class(**copy.deepcopy(dict(preset.config)), architectures=[preset.model_class])
        assume(f"{name} is built from the configuration of preset:{preset.name}, without its weights")
        return {**config.to_dict(), "_name_or_path": str(name)}, _of_configuration(kwargs)

    return get_config_dict


def _of_configuration(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if key not in _OF_HUB}


def _model(_: Any, assume: Assume) -> Any:
    def from_pretrained(cls: Any, name: Any, *_args: Any, config: Any = None, **kwargs: Any) -> Any:
        import torch

        if config is None or not hasattr(config, "to_dict"):
            own = {key: value for key, value in kwargs.items() if key not in _OF_LOADING or key == "subfolder"}
            config = cls.config_class.from_pretrained(name if config is None else config, **own)
        config = copy.deepcopy(config)
        if isinstance(kwargs.get("attn_implementation"), str):
            config._attn_implementation = kwargs["attn_implementation"]
        dtype = kwargs.get("dtype", kwargs.get("torch_dtype", _default_dtype()))
        if isinstance(dtype, str):
            dtype = getattr(config, "dtype", None) if dtype == "auto" else getattr(torch, dtype)
        if Path(str(name)).is_dir():
            assume(f"weights in {name} are not read")
        model = build(lambda: cls._from_config(config, **({} if dtype is None else {"dtype": dtype})))
        model.eval()
        device_map = kwargs.get("device_map")
        if (how := quantisation(kwargs)) is not None:
            _quantised(model, how)
        elif device_map is not None and device_map != "cpu":
            model = model.to("cuda" if isinstance(device_map, str) else next(iter(device_map.values())))
        return (model, {"missing_keys": []}) if kwargs.get("output_loading_info") else model

    return from_pretrained


def quantisation(kwargs: Mapping[str, Any]) -> Any:
    """Return the configuration of the quantised weights that ``from_pretrained`` is asked for; None for plain ones."""
    from transformers import BitsAndBytesConfig

    make: Any = BitsAndBytesConfig
    given = kwargs.get("quantization_config")
    if given is None and (kwargs.get("load_in_4bit") or kwargs.get("load_in_8bit")):
        return make(**{name: kwargs.get(name, False) for name in ("load_in_4bit", "load_in_8bit")})
    if isinstance(given, Mapping):
        given = make(**given)
    if given is not None and not isinstance(given, BitsAndBytesConfig):
        raise EstimateError(
            f"from_pretrained() with {type(given).__name__} is not played",
            hint="weights quantised by bitsandbytes are (BitsAndBytesConfig)",
        )
    return given


def _quantised(model: Any, given: Any) -> None:
    """Hold linear layers as bitsandbytes does, and say so as transformers does (quantizers/base.py, modeling_utils)."""
    import torch

    if not torch.cuda.is_available():
        raise EstimateError("weights quantised by bitsandbytes are not played on the CPU", hint="name a GPU: --gpu")
    how: Literal["nf4", "nf4-double", "int8"] = "nf4" if given.load_in_4bit else "int8"
    if how == "nf4" and given.bnb_4bit_use_double_quant:
        how = "nf4-double"
    quantize(model, how, compute_dtype=given.bnb_4bit_compute_dtype, frozen_only=False)
    model.config.quantization_config = given
    model.is_quantized, model.quantization_method = True, given.quant_method
    model.hf_quantizer = SimpleNamespace(quantization_config=given, is_trainable=True, is_qat_trainable=False)


_OF_HUB = frozenset({
    "cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "trust_remote_code", "subfolder",
    "_from_pipeline", "_from_auto", "_commit_hash", "gguf_file", "resume_download", "use_auth_token",
})  # fmt: skip
"""Arguments that reading a configuration takes up (transformers, configuration_utils.py, _get_config_dict)."""


def _default_dtype() -> str | None:
    """What weights are loaded in where nobody says: that of the configuration from transformers 5 on."""
    return "auto" if int(importlib.metadata.version("transformers").partition(".")[0]) >= TRANSFORMERS_5 else None


TRANSFORMERS_5 = 5
"""transformers 5, modeling_utils.py, from_pretrained: ``dtype = kwargs.pop("dtype", "auto")`` in effect."""
_OF_LOADING = frozenset({
    "dtype", "torch_dtype", "device_map", "attn_implementation", "quantization_config", "low_cpu_mem_usage", "token",
    "use_auth_token", "cache_dir", "revision", "trust_remote_code", "from_tf", "use_safetensors", "load_in_8bit",
    "load_in_4bit", "output_loading_info", "ignore_mismatched_sizes", "local_files_only", "force_download", "subfolder",
    "variant", "max_memory", "offload_folder", "use_flash_attention_2", "_from_auto", "adapter_kwargs", "_commit_hash",
    "proxies", "resume_download",
})  # fmt: skip
"""Arguments that say nothing of the configuration (transformers, modeling_utils.py, from_pretrained)."""


def _preset(name: Any) -> Preset:
    preset = preset_of(str(name))
    if preset is None:
        raise EstimateError(
            f"{name} is not on this disk, and its configuration is not known here",
            hint="give the program a folder with its config.json and tokenizer, or a model of 'memplan presets'",
        )
    return preset
