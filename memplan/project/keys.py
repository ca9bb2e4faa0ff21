"""The keys of a project file. Options of ``memplan estimate`` keep their names."""

from dataclasses import fields

from memplan.job.options import OPTIONS
from memplan.project.records import Policy

_KEYS = {name: option.called for name, option in OPTIONS.items()}
REQUIRED = frozenset({"name", "target"})
"""Of a job, but that a program stands for a target."""
PROGRAM = frozenset({"script", "args"})
"""Keys that name a program and its arguments instead of a target."""


def key_of(field: str) -> str:
    """What a field of ``JobSpec`` is called in a project file: as the option, without dashes in front."""
    return _KEYS.get(field, field.replace("_", "-"))


def field_of(key: str) -> str:
    """The field of a record that a key sets."""
    return next((field for field, other in _KEYS.items() if other == key), key.replace("-", "_"))


POLICY = tuple(key_of(field.name) for field in fields(Policy))
"""What a job may need."""
SHARED = ("gpus", "timeout", "alloc-conf", *POLICY)
"""Keys that stand in a job, or at the top for all of them: on what and how it is traced, too."""
ONCE = ("baseline", "profile-dirs")
"""Keys that stand at the top alone."""
TOP = (*ONCE, *SHARED)
"""Keys at the top, beside the jobs; each has its variable of the environment."""
JOB = ("name", "target", "script", "args", "config", *SHARED, *_KEYS.values())
"""Every key of a job."""
