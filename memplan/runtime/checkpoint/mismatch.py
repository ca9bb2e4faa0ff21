"""A plan that does not fit what it is applied to: an error, or on the CPU a warning."""

from memplan.errors import UsageError


class PlanMismatch(UsageError):  # noqa: N818  # it names what is wrong, as the plan's reader would say it
    """A plan and a model do not belong together, or the model ran otherwise than the plan says."""


class PlanFallbackWarning(UserWarning):
    """A plan for a GPU runs on the CPU, whose kernels are others: what it would keep of them runs again."""
