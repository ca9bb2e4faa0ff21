"""Files of every kind that memplan reads: real ones, those with something wrong, and things that are no files."""

import json
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from memplan.gate.saved import render_baseline
from memplan.job.setup_file import Prediction, make_setup, write_setup
from memplan.job.spec import FileTarget, JobSpec
from memplan.report.estimate import json as estimate_json
from memplan.report.gate import json as gate_json
from memplan.runtime.profile import recording
from memplan.units import Bytes
from tests.fuzz.texts import hostile
from tests.gate.projects import MODEL, PROJECT
from tests.report.example_estimates import FITS, OOM
from tests.report.example_gate import example
from tests.report.profile_examples import EXAMPLE, played, recording_of
from tests.snapshot.snapshot_files import event

T4 = (Path(__file__).parents[2] / "hardware_profiles" / "t4.toml").read_text("utf-8")
_BLOCK = {"size": 512, "requested_size": 500, "address": 1 << 30, "state": "active_allocated", "frames": []}
SNAPSHOT = {
    "segments": [
        {
            "device": 0, "address": 1 << 30, "total_size": 2 << 20, "allocated_size": 512, "active_size": 512,
            "requested_size": 500, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [],
            "blocks": [_BLOCK, {**_BLOCK, "address": (1 << 30) + 512, "size": (2 << 20) - 512, "state": "inactive"}],
        }
    ],
    "device_traces": [[event("segment_alloc", 1 << 30, 2 << 20), event("alloc", 1 << 30, 512)]],
    "allocator_settings": {},
}  # fmt: skip
GRAPH = {
    "directed": True, "multigraph": False, "graph": {},
    "nodes": [{"id": i, "name": f"n{i}", "cost_cpu": 1.0, "cost_ram": 4.0} for i in range(5)],
    "links": [{"source": i, "target": i + 1} for i in range(4)],
}  # fmt: skip
_SETUP = make_setup(
    JobSpec(target=FileTarget(path=Path("model.py")), batch_size=2),
    "t4",
    Prediction(device_bytes=Bytes(3), allocated_bytes=Bytes(1), reserved_bytes=Bytes(2)),
)
_DEEPSPEED = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}
_TRAINING = {"per_device_train_batch_size": 2, "bf16": True, "optim": "adamw_torch", "gradient_checkpointing": True}
_GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 16, "n_positions": 16}
_ACCELERATE = (
    "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: bf16\n"
    "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"
)

TEXTS: Mapping[str, str] = {
    "model.py": MODEL.replace("BLOCKS", "2").replace("256", "8"),
    "memplan.toml": PROJECT,
    "pyproject.toml": '[tool.memplan]\ngpus = ["t4"]\n[[tool.memplan.job]]\nname = "a"\ntarget = "model.py"\n',
    "estimate.json": estimate_json.render([FITS, OOM]),
    "gate.json": gate_json.render(example()),
    "baseline.json": render_baseline({("small", FITS.gpu.name): FITS}),
    "setup.json": write_setup(_SETUP),
    "plan.json": json.dumps({"schema_version": "1.0", "blocks": [{"module": "0", "action": "checkpoint"}]}),
    "recording.json": recording.render(recording_of(played(EXAMPLE, 3))),
    "graph.json": json.dumps(GRAPH),
    "ds_config.json": json.dumps(_DEEPSPEED),
    "training.json": json.dumps(_TRAINING),
    "adapter_config.json": json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["up"]}),
    "config.json": json.dumps(_GPT2),
    "accelerate.yaml": _ACCELERATE,
    "axolotl.yml": "base_model: hf/x\nmicro_batch_size: 2\nsequence_len: 16\nadapter: lora\nlora_r: 8\n",
    "buffers.csv": "id,lower,upper,size\na,0,3,4\nb,1,2,5\n",
    "lengths.txt": "128\n256\n64\n",
    "mine.toml": T4,
}  # fmt: skip
"""Name → a file as it should be."""
KINDS = (*TEXTS, "snapshot.pickle")
ODD = (
    "folder",
    "nothing",
    "loop",
    "null",
    "full",
    "zero",
    "pipe",
    "unreadable",
    "x" * 300,
    "sub/model.py",
    "no/such.json",
)
"""Names that lead to no plain file."""
DEEP = 100_000


def lay_out(folder: Path) -> None:
    """Put all of them into a folder, with what is no file beside."""
    for name, text in TEXTS.items():
        if name != "pyproject.toml":
            (folder / name).write_text(text, encoding="utf-8")
    (folder / "snapshot.pickle").write_bytes(pickle.dumps(SNAPSHOT))
    (folder / "folder").mkdir()
    (folder / "profiles").mkdir()
    (folder / "profiles" / "mine.toml").write_text(T4, encoding="utf-8")
    (folder / "loop").symlink_to("loop")
    (folder / "null").symlink_to("/dev/null")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "full").symlink_to("/dev/full")
    (folder / "unreadable").mkdir(mode=0)
    os.mkfifo(folder / "pipe")


def break_one(folder: Path, random: Random) -> str:
    """Write one of the files anew, with something wrong in it; its name."""
    name = random.choice(KINDS)
    path = folder / name
    content = pickle.dumps(SNAPSHOT) if name == "snapshot.pickle" else TEXTS[name].encode()
    if name == "pyproject.toml":
        (folder / "memplan.toml").unlink()
    path.write_bytes(_broken(content, name, random))
    return name


def _broken(content: bytes, name: str, random: Random) -> bytes:
    whole: list[Callable[[bytes, Random], bytes]] = [_cut, _flipped, _doubled, _inserted, _another]
    if name.endswith(".json"):
        return random.choice([*whole, _grafted, _grafted, _grafted, _deep_json])(content, random)
    if name == "snapshot.pickle":
        return random.choice([*whole, _grafted_pickle, _grafted_pickle])(content, random)
    return random.choice([*whole, _replaced_value, _replaced_value, _deep_toml])(content, random)


def _cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _flipped(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 3, 20))):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _doubled(content: bytes, random: Random) -> bytes:
    start = random.randrange(len(content))
    return content[:start] + content[start:] * random.randint(2, 3)


def _inserted(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content) + 1)
    return content[:at] + hostile(random).encode("utf-8", "surrogatepass") + content[at:]


def _another(_: bytes, random: Random) -> bytes:
    other = random.choice(
        [*TEXTS.values(), "", "\x00" * 100, "[" * DEEP, "null", "[]", "{}", "1", '"x"', "﻿{}", "\ud800"]
    )
    return other.encode("utf-8", "surrogatepass")


def _deep_json(_: bytes, random: Random) -> bytes:
    return random.choice((b"[" * DEEP, b'{"a":' * DEEP, b"[" * 500 + b"]" * 500, b"9" * 10_000))


def _deep_toml(content: bytes, random: Random) -> bytes:
    key = b".".join([b"a"] * random.choice((50, 3000)))
    return content + random.choice(
        (b"\n" + key + b" = 1\n", b"\n[" + key + b"]\n", b"\nz = " + b"[" * 3000, b"\nz: " + b"[" * 3000)
    )


def _replaced_value(content: bytes, random: Random) -> bytes:
    lines = content.decode().splitlines()
    at = random.randrange(len(lines))
    head, separator, _ = lines[at].partition(random.choice(("=", ":", ",")))
    quoted = random.choice(("{}", '"{}"', "'{}'")).replace("{}", hostile(random))
    lines[at] = head + separator + " " + quoted
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _grafted(content: bytes, random: Random) -> bytes:
    document = json.loads(content)
    for _ in range(random.choice((1, 1, 2, 5))):
        _graft(document, random)
    return json.dumps(document).encode()


def _grafted_pickle(_: bytes, random: Random) -> bytes:
    snapshot = pickle.loads(pickle.dumps(SNAPSHOT))
    _graft(snapshot, random)
    return pickle.dumps(snapshot, protocol=random.choice((2, 4)))


def _graft(document: Any, random: Random) -> None:
    """Change, drop or add one value somewhere in a tree."""
    place = document
    while True:
        inner = [each for each in _values(place) if isinstance(each, dict | list) and each]
        if not inner or random.random() < 0.3:
            break
        place = random.choice(inner)
    if isinstance(place, dict) and place:
        key = random.choice([*place])
        how = random.random()
        if how < 0.2:
            del place[key]
        elif how < 0.3:
            place[hostile(random)] = place[key]
        else:
            place[key] = _value(random)
    elif isinstance(place, list) and place:
        place[random.randrange(len(place))] = _value(random)


def _values(place: Any) -> list[Any]:
    return [*place.values()] if isinstance(place, dict) else list(place) if isinstance(place, list) else []


def _value(random: Random) -> Any:
    numbers = (0, -1, 1, 0.5, -0.5, 1e308, float("inf"), float("nan"), 2**63, 10**400, True, False)
    return random.choice((None, {}, [], [[]], {"": ""}, *numbers, *[hostile(random) for _ in range(8)]))
