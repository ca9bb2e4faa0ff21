"""What holds for every test."""

from hypothesis import settings

# No test is timed: a busy machine must not turn a law into a failure.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
