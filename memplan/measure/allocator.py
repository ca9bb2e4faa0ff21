"""Which options of the allocator are in force, and what is told of them."""

from dataclasses import replace

from memplan.errors import UsageError
from memplan.hardware.profile import GpuProfile
from memplan.replay.conf import parse_conf
from memplan.replay.policy import AllocatorPolicy

DEFAULT_POLICY = AllocatorPolicy()
"""PyTorch's own options."""


def given_policy(conf: str) -> AllocatorPolicy | None:
    """What ``--alloc-conf`` says; None where nothing is said.

    Raises:
        UsageError: Nobody understands it.
    """
    return parse_conf(conf) if conf else None


def in_force(given: AllocatorPolicy | None, own: str, profile: GpuProfile) -> AllocatorPolicy:
    """The options that a device's allocator runs with.

    Args:
        given: What was asked for, which comes first; None: nothing was.
        own: The target's own options (``Trace.alloc_conf``).
        profile: The device.
    """
    policy = given or _understood(own) or DEFAULT_POLICY
    return policy if has_expandable_segments(profile) else replace(policy, expandable_segments=False)


def has_expandable_segments(profile: GpuProfile) -> bool:
    """Does the allocator of this release have them on such a card?

    ROCm builds ignore the option before torch 2.12 (github.com/pytorch/pytorch/pull/177974).
    """
    if profile.kind != "rocm":
        return True
    # Importing torch takes longer than an answer from the cache.
    from memplan.tracing.cuda.release import since

    return since("2.12")


def told(given: AllocatorPolicy | None, own: str, profile: GpuProfile) -> tuple[str, ...]:
    """Sentences on options that nobody asked for here, and on such that do nothing; arguments as of ``in_force``."""
    if profile.kind == "cpu":
        return ()
    found = _understood(own)
    said = []
    if own and given is None:
        taken = "taken" if found else "not understood: PyTorch's own are taken"
        said.append(f"the target's own options of the allocator, {own}, are {taken}")
    asked = given or found or DEFAULT_POLICY
    if asked.expandable_segments and not has_expandable_segments(profile):
        said.append("ROCm builds of torch before 2.12 have no expandable segments: the option is ignored")
    return tuple(said)


def _understood(own: str) -> AllocatorPolicy | None:
    try:
        return given_policy(own)
    except UsageError:
        return None
