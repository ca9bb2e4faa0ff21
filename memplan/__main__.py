"""``python -m memplan``."""

import sys

from memplan.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
