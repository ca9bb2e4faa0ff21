"""At which depths a model is traced whose steps are to be continued."""

from typing import Final

DEPTHS: Final = (0, 2, 3)
"""In periods of blocks above the first: two more show what a copy is and how one differs from the next, a third how
it differs from depth to depth, and that all of this goes on."""
FIRST, SECOND, THIRD = DEPTHS
