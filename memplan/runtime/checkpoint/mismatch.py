"""The error of a plan that does not fit what it is applied to."""

from memplan.errors import UsageError


class PlanMismatch(UsageError):  # noqa: N818  # it names what is wrong, as the plan's reader would say it
    """A plan and a model do not belong together, or the model ran otherwise than the plan says."""
