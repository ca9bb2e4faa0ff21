"""Which GPUs a process sees, in which order: ``CUDA_VISIBLE_DEVICES`` and its like.

Rules: "CUDA environment variables" of the CUDA programming guide, and ``torch.cuda._parse_visible_devices`` of torch
2.13: the list ends at the first entry that is no device; a device named twice leaves none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memplan.runtime.numa.records import Device

VARIABLES: Mapping[str, tuple[str, ...]] = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "intel": (),
}
"""Vendor → variables, in the order in which they are applied; ROCm's runtime comes before HIP."""


def number_gpus(
    gpus: Sequence[Device], environment: Mapping[str, str], migs: Mapping[str, str]
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Give each visible GPU its number, the others following without one; and say what one should know.

    GPUs come in the order of the bus; ``migs`` maps the UUID of a MIG instance to that of its GPU.
    """
    seen, notes = list(gpus), []
    for name in VARIABLES.get(gpus[0].vendor, ()) if gpus else ():
        if name in environment:
            chosen = _chosen(environment[name], seen, migs)
            if chosen is None:
                notes.append(f"{name}={environment[name]} names GPUs by identity, which only their driver knows")
                continue
            seen = chosen
            notes.append(f"{name}={environment[name]} leaves {len(seen)} of {len(gpus)} GPUs")
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len({gpu.name for gpu in gpus if gpu.name}) > 1:
        notes.append("GPUs of several kinds: CUDA numbers the fastest first; set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    numbered = [replace(gpu, index=number) for number, gpu in enumerate(seen)]
    hidden = [gpu for gpu in gpus if gpu.address not in {other.address for other in seen}]
    return (*numbered, *hidden), tuple(notes)


def _chosen(text: str, gpus: Sequence[Device], migs: Mapping[str, str]) -> list[Device] | None:
    """The GPUs of a list; None where it names them by identity and nobody knows the identities."""
    entries = [entry.strip() for entry in text.split(",")]
    if entries[0].startswith(("GPU-", "MIG-")) and not any(gpu.uuid for gpu in gpus):
        return None
    if len(set(entries)) < len(entries):
        return []
    chosen: list[Device] = []
    for entry in entries:
        gpu = _one(entry, gpus, migs)
        if gpu is None:
            break
        chosen.append(gpu)
    return chosen


def _one(entry: str, gpus: Sequence[Device], migs: Mapping[str, str]) -> Device | None:
    if entry.isascii() and entry.isdigit():
        return gpus[int(entry)] if len(entry) < 5 and int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):
        # The older form, MIG-GPU-<uuid>/<instance>/<instance>, names its GPU.
        entry = migs.get(entry, entry.removeprefix("MIG-").partition("/")[0])
    found = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None
