"""``validate --calibrate``: measure a device in a child process, write a GPU profile of it, and load that back."""

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile, normalise, user_folder
from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.validate.calibration_records import (
    HOST_TO_DEVICE,
    WITHIN_DEVICE,
    Calibration,
    Figures,
    WrittenProfile,
)
from memplan.validate.profiles import find_profile, made_profile

_KEPT = ("title", "kind", "peak_flops", "peer_link_bandwidth")
"""Keys that a profile without a base must have and that nobody measures here."""


def calibrate(
    device: str,
    *,
    profile_out: Path | None = None,
    timeout: float = 600.0,
    progress: Callable[[str], None] | None = None,
) -> WrittenProfile:
    """Measure a device and write its profile.

    Args:
        device: ``auto``, ``cuda`` or ``cuda:N``.
        profile_out: The file; None takes the user's profile folder, where every command then finds it.
        timeout: Seconds for the child process.
        progress: Told what happens now.

    Raises:
        UsageError: There is no CUDA device, or the file cannot be written.
    """
    calibration = run_isolated(_in_child, device, timeout=timeout, progress=progress)
    return write_profile(calibration, profile_out, today=dt.datetime.now(tz=dt.UTC).date())


def write_profile(calibration: Calibration, path: Path | None, *, today: dt.date) -> WrittenProfile:
    """Write a calibration as a profile over the one that is most like the device, and load it back.

    ``path`` None takes the user's profile folder; the day is for the sources.

    Raises:
        UsageError: The file cannot be written, or what was measured contradicts itself.
    """
    before, by_name = find_profile(calibration.facts)
    name = before.name if before is not None and by_name else normalise(calibration.facts.name).replace("/", "-")
    path = path or user_folder() / f"{name}.toml"
    text = profile_text(calibration, before, keeps_name=by_name, today=today)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the profile: {error.strerror}", where=str(path)) from error
    after = load_profile(path.stem, profile_dirs=(path.parent,))
    return WrittenProfile(calibration=calibration, path=path, before=before, after=after)


def profile_text(calibration: Calibration, base: GpuProfile | None, *, keeps_name: bool, today: dt.date) -> str:
    """The profile as TOML: over a base, with its name and title or not; without one every key is written."""
    figures = dict(_figures(calibration))
    source = f"measured by memplan validate --calibrate, {_versions(calibration)}, {today.isoformat()}"
    lines = [f"# {calibration.facts.name}: {source}", *(f"# {line}" for line in _remarks(calibration)), ""]
    if base is not None:
        lines.append(f"base = {_toml(base.name)}")
        if base.usable_bytes > calibration.facts.total_bytes:
            # The base's card is larger; what no process gets is taken to be the same.
            lost = base.total_bytes - base.usable_bytes
            figures.setdefault("usable_bytes", calibration.facts.total_bytes - lost)
        figures |= {} if keeps_name else {"title": calibration.facts.name}
    else:
        made = made_profile(calibration.facts)
        missing = {key: getattr(made, key) for key in (*_KEPT, *_MEASURED)}
        figures = missing | figures
    tables = {key: value for key, value in figures.items() if isinstance(value, Mapping)}
    lines += [f"{key} = {_toml(value)}" for key, value in figures.items() if key not in tables]
    for key, table in tables.items():
        lines += ["", f"[{key}]", *(f"{word} = {_toml(value)}" for word, value in table.items())]
    sources = {key: source for key, _ in _figures(calibration)}
    lines += ["", "[sources]", *(f"{key} = {_toml(text)}" for key, text in sources.items())]
    return "\n".join(lines) + "\n"


_MEASURED = (
    "total_bytes",
    "usable_bytes",
    "context_bytes",
    "cublas_workspace_bytes",
    "compute_capability",
    "sm_count",
    "threads_per_sm",
    "memory_bandwidth",
    "host_link_bandwidth",
)
"""Keys that a calibration gives, unless something could not be measured."""


def _figures(calibration: Calibration) -> Iterator[tuple[str, object]]:
    """Key → value, of all that was measured."""
    facts, context = calibration.facts, calibration.context_bytes
    rates = {transfer.kind: transfer.bytes_per_second for transfer in calibration.transfers}
    known: Figures = {
        "total_bytes": facts.total_bytes,
        "usable_bytes": calibration.usable_bytes,
        "context_bytes": context,
        "context_low_bytes": None if context is None else min(calibration.context_low_bytes or context, context),
        "context_high_bytes": context,
        "cublas_workspace_bytes": calibration.cublas_workspace_bytes,
        "compute_capability": list(facts.capability) if facts.capability else None,
        "sm_count": facts.sm_count,
        "threads_per_sm": facts.threads_per_sm,
        "memory_bandwidth": rates.get(WITHIN_DEVICE),
        "host_link_bandwidth": rates.get(HOST_TO_DEVICE),
    }
    # A figure of 0 says that something could not be seen: no device works without any of these.
    return ((key, value) for key, value in known.items() if value)


def _remarks(calibration: Calibration) -> Iterator[str]:
    """What was measured and has no key of its own."""
    for transfer in calibration.transfers:
        yield f"{transfer.kind}: {transfer.bytes_per_second / 1e9:.2f} GB/s, copies of {transfer.nbytes >> 20} MiB"
    if calibration.cudnn_workspace_bytes is not None:
        yield f"first cuDNN convolution (8x64x56x56, 3x3, fp32): workspace {calibration.cudnn_workspace_bytes} bytes"
    yield from calibration.notes


def _versions(calibration: Calibration) -> str:
    return ", ".join(f"{name} {text}" for name, text in sorted(calibration.facts.versions.items()))


def _toml(value: object) -> str:
    """A value as TOML writes it; its strings, numbers and arrays are written as JSON's."""
    if isinstance(value, float):
        return f"{value:.6e}"
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _in_child(device: str) -> Calibration:
    from memplan.job.child import progress
    from memplan.validate.calibrate_here import calibrate_here

    return calibrate_here(device, progress)
