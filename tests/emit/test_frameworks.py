"""What memplan writes, the frameworks themselves load: each file goes through its framework's own reader."""

import importlib
import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from memplan.job.adapters import Lora
from memplan.job.parallel import parse_parallel
from memplan.job.zero import Zero
from tests.emit.frameworks import launched, needed, write
from tests.emit.setups import setup

ZERO_3 = Zero(
    stage=3,
    offload_optimizer="cpu",
    offload_param="nvme",
    reduce_bucket_size=123_000_000,
    max_live_parameters=77_000_000,
    prefetch_bucket_size=11_000_000,
    param_persistence_threshold=5,
    overlap_comm=False,
    gradient_accumulation_dtype="fp32",
)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeed_takes_its_file(stage: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    needed("deepspeed", "0.19")
    config_module = importlib.import_module("deepspeed.runtime.config")
    zero = ZERO_3 if stage == 3 else Zero(stage=stage, offload_optimizer="cpu", reduce_bucket_size=123_000_000)
    made = setup(
        parallel=parse_parallel(f"zero{stage}=8"), zero=zero, grad_accum=2, clip_grad_norm=0.5, optimizer="sgd-momentum"
    )
    path = write(made, "deepspeed", tmp_path)
    monkeypatch.setattr(config_module.dist, "get_rank", lambda *_: 0)
    monkeypatch.setattr(config_module.dist, "get_world_size", lambda *_: 8)
    config = config_module.DeepSpeedConfig(json.loads(path.read_text()))
    assert (config.train_batch_size, config.train_micro_batch_size_per_gpu) == (4 * 2 * 8, 4)
    assert (config.gradient_accumulation_steps, config.gradient_clipping) == (2, 0.5)
    assert (config.bfloat16_config.enabled, config.float16_config.enabled) == (True, False)
    assert (config.optimizer_name, config.optimizer_params) == ("SGD", {"momentum": 0.9})
    assert config.zero_allow_untested_optimizer
    found = config.zero_config
    assert (int(found.stage), found.reduce_bucket_size) == (stage, 123_000_000)
    assert found.offload_optimizer.device == "cpu"
    if stage == 3:
        assert (found.max_live_parameters, found.prefetch_bucket_size) == (77_000_000, 11_000_000)
        assert (found.param_persistence_threshold, found.overlap_comm) == (5, False)
        assert (found.offload_param.device, str(found.offload_param.nvme_path)) == ("nvme", "/local_nvme")
        assert config.grad_accum_dtype == "fp32"


def test_deepspeed_refuses_its_file_on_another_number_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    needed("deepspeed", "0.19")
    config_module = importlib.import_module("deepspeed.runtime.config")
    path = write(setup(parallel=parse_parallel("zero2=8")), "deepspeed", tmp_path)
    monkeypatch.setattr(config_module.dist, "get_rank", lambda *_: 0)
    monkeypatch.setattr(config_module.dist, "get_world_size", lambda *_: 4)
    with pytest.raises(AssertionError, match="train_batch_size"):
        config_module.DeepSpeedConfig(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("parallel", "kind", "version"), [("fsdp=8", "FSDP", 2), ("fsdp1=8", "FSDP", 1), ("hsdp=2x4,tp=2", "FSDP", 2)]
)
def test_accelerate_launches_with_its_file(parallel: str, kind: str, version: int, tmp_path: Path) -> None:
    needed("accelerate", "1.15")
    read = importlib.import_module("accelerate.commands.config.config_args")
    mesh = parse_parallel(f"{parallel},offload=yes")
    path = write(setup(parallel=mesh, checkpoint="full", compile="inductor"), "accelerate", tmp_path)
    config = read.load_config_from_file(str(path))
    assert config.distributed_type.value == kind
    args = launched(path)
    assert (args.use_fsdp, args.fsdp_version, args.num_processes) == (True, version, mesh.ranks)
    assert args.mixed_precision == "bf16"
    assert (args.fsdp_offload_params, args.fsdp_activation_checkpointing) == (True, True)
    assert args.dynamo_backend == "INDUCTOR"
    if "hsdp" in parallel:
        mesh_module = importlib.import_module("accelerate.parallelism_config")
        sizes = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size")
        theirs = {name: getattr(args, f"parallelism_config_{name}") for name in sizes}
        assert mesh_module.ParallelismConfig(**theirs).total_size == mesh.ranks
        assert args.use_parallelism_config
        assert (args.parallelism_config_dp_replicate_size, args.parallelism_config_dp_shard_size) == (2, 4)
        assert args.parallelism_config_tp_size == 2


@pytest.mark.parametrize("parallel", ["none", "ddp=4"])
def test_accelerate_launches_without_sharding(parallel: str, tmp_path: Path) -> None:
    needed("accelerate", "1.15")
    args = launched(write(setup(parallel=parse_parallel(parallel)), "accelerate", tmp_path))
    assert (args.multi_gpu, args.use_fsdp, args.use_deepspeed) == (parallel != "none", False, False)
    assert args.num_processes == (4 if parallel != "none" else 1)


def test_accelerate_hands_deepspeed_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    needed("accelerate", "1.15")
    needed("deepspeed", "0.19")
    path = write(setup(parallel=parse_parallel("zero3=8"), zero=ZERO_3), "accelerate", tmp_path)
    args = launched(path)
    assert (args.use_deepspeed, args.num_processes, args.deepspeed_config_file) == (True, 8, "ds_config.json")
    # Its plugin refuses a file of DeepSpeed beside settings of its own: what the launcher's file says of it.
    read = importlib.import_module("accelerate.commands.config.config_args")
    own = [*read.load_config_from_file(str(path)).deepspeed_config]
    monkeypatch.setenv("ACCELERATE_CONFIG_DS_FIELDS", str(own).lower())
    plugin = importlib.import_module("accelerate.utils.dataclasses").DeepSpeedPlugin(
        hf_ds_config=str(tmp_path / args.deepspeed_config_file), zero3_init_flag=args.zero3_init_flag
    )
    assert plugin.zero_stage == 3
    assert plugin.hf_ds_config.config["train_batch_size"] == 32


def test_accelerate_refuses_a_key_that_it_does_not_know(tmp_path: Path) -> None:
    needed("accelerate", "1.15")
    read = importlib.import_module("accelerate.commands.config.config_args")
    path = write(setup(), "accelerate", tmp_path)
    path.write_text(path.read_text() + "_memplan: head\n")
    with pytest.raises(ValueError, match="unknown keys"):
        read.load_config_from_file(str(path))


def parsed(path: Path, folder: Path) -> object:
    """``TrainingArguments`` out of a file, strictly."""
    needed("accelerate", "1.15")  # The trainer's arguments ask it for the device.
    transformers = needed("transformers", "5.23")
    content = json.loads(path.read_text()) | {"output_dir": str(folder), "use_cpu": True}
    (folder / "with_output.json").write_text(json.dumps(content))
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It warns of FSDP1's end and of what its own dependencies do.
        [arguments] = parser.parse_json_file(str(folder / "with_output.json"))
    return arguments


@pytest.mark.parametrize(
    ("optimizer", "implementation", "name"),
    [
        ("adamw", "auto", "adamw_torch"), ("adamw", "fused", "adamw_torch_fused"), ("sgd", "auto", "sgd"),
        ("adamw-8bit", "auto", "adamw_bnb_8bit"), ("paged-adamw-8bit", "auto", "paged_adamw_8bit"),
        ("lion", "auto", "lion_32bit"), ("adagrad", "auto", "adagrad"), ("adafactor", "auto", "adafactor"),
    ],
)  # fmt: skip
def test_transformers_parses_training_arguments(optimizer: str, implementation: str, name: str, tmp_path: Path) -> None:
    made = setup(grad_accum=4, checkpoint="full", optimizer=optimizer, optimizer_impl=implementation)
    arguments = parsed(write(replace(made, job=replace(made.job, precision="fp32")), "hf", tmp_path), tmp_path)
    assert arguments.optim == name
    assert (arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps) == (4, 4)
    assert (arguments.max_grad_norm, arguments.activation_checkpointing) == (0.0, True)


@pytest.mark.parametrize(
    ("parallel", "version", "reshard"), [("fsdp=8,reshard=no", 2, False), ("fsdp1=8", 1, "full_shard")]
)
def test_transformers_parses_fsdp(parallel: str, version: int, reshard: object, tmp_path: Path) -> None:
    made = setup(parallel=parse_parallel(parallel), checkpoint="full", precision="fp32")
    arguments = parsed(write(made, "hf", tmp_path), tmp_path)
    plugin = arguments.fsdp_plugin_args
    assert (plugin["fsdp_version"], plugin["reshard_after_forward"]) == (version, reshard)
    assert plugin["activation_checkpointing"]
    assert not arguments.activation_checkpointing


def test_transformers_parses_liger_for_a_chunked_loss(tmp_path: Path) -> None:
    arguments = parsed(write(setup(loss_chunks=8, precision="fp32"), "hf", tmp_path), tmp_path)
    assert arguments.use_liger_kernel
    assert [name for name, is_on in arguments.liger_kernel_config.items() if is_on] == ["fused_linear_cross_entropy"]


def test_peft_takes_its_file(tmp_path: Path) -> None:
    peft = needed("peft")
    write(setup(lora=Lora(rank=16, alpha=32, targets=("q_proj", "v_proj"), dropout=0.1, dora=True)), "hf", tmp_path)
    config = peft.PeftConfig.from_pretrained(str(tmp_path))
    assert (config.r, config.lora_alpha, config.lora_dropout, config.use_dora) == (16, 32, 0.1, True)
    assert config.target_modules == {"q_proj", "v_proj"}


@pytest.mark.parametrize(("quantize", "double"), [("nf4", False), ("nf4-double", True), ("int8", None)])
def test_bitsandbytes_configuration_is_taken(quantize: str, double: bool | None, tmp_path: Path) -> None:
    transformers = needed("transformers", "5.23")
    write(setup(quantize=quantize, lora=Lora()), "hf", tmp_path)
    config = transformers.BitsAndBytesConfig.from_dict(json.loads((tmp_path / "quantization_config.json").read_text()))
    assert config.load_in_8bit == (quantize == "int8")
    if double is not None:
        assert (config.load_in_4bit, config.bnb_4bit_quant_type) == (True, "nf4")
        assert (config.bnb_4bit_use_double_quant, str(config.bnb_4bit_compute_dtype)) == (double, "torch.bfloat16")


@pytest.mark.parametrize("parallel", ["none", "ddp=4", "fsdp=8,offload=yes", "fsdp1=8", "hsdp=2x4,tp=2", "zero3=8"])
@pytest.mark.parametrize("adapted", [False, True])
def test_axolotl_validates_its_file(parallel: str, adapted: bool, tmp_path: Path) -> None:
    schema = needed("axolotl.utils.schemas.config")
    yaml = importlib.import_module("yaml")
    quantised = {"lora": Lora(rank=16, alpha=32), "quantize": "nf4"} if adapted else {}
    saving = {"loss_chunks": 8, "offload_activations": True}
    job = {"checkpoint": "full", "grad_accum": 2, "clip_grad_norm": 1.0, **saving, **quantised}
    made = setup(parallel=parse_parallel(parallel), **job)
    content = yaml.safe_load(write(made, "axolotl", tmp_path).read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = schema.AxolotlInputConfig(**content, datasets=[{"path": "a", "type": "alpaca"}], learning_rate=1e-4)
    known = {*schema.AxolotlInputConfig.model_fields}
    assert set(content) <= known
    assert (config.micro_batch_size, config.gradient_accumulation_steps, config.sequence_len) == (4, 2, 2048)
    assert (config.optimizer, config.max_grad_norm, config.bf16) == ("adamw_torch", 1.0, True)
    assert (config.chunked_cross_entropy, config.chunked_cross_entropy_num_chunks) == (True, 8)
    assert bool(config.activation_offloading) == (not parallel.startswith(("fsdp", "hsdp")))
    if "fsdp" in parallel or "hsdp" in parallel:
        assert config.fsdp_config.activation_checkpointing
        assert config.fsdp_version == (1 if "fsdp1" in parallel else 2)
        assert set(content["fsdp_config"]) <= {*type(config.fsdp_config).model_fields}
    if adapted:
        assert (config.adapter, config.load_in_4bit, config.lora_r, config.lora_alpha) == ("qlora", True, 16, 32)
