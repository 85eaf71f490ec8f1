"""`python -m reasoning_gym_environment`."""

import sys

from reasoning_gym_environment.cli import main

if __name__ == "__main__":
    sys.exit(main())
