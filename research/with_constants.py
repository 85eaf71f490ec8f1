"""Run a command of the environment with other constants, for ablations.

    python research/with_constants.py problems.sampler.LEAST_ACCEPTANCE=1.0 -- serve --env.seed=1

Each constant replaces one of the same name and type before the command starts.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence

from reasoning_gym_environment.cli import main


def replace_constants(assignments: Sequence[str]) -> None:
    """Replace constants of modules; raise SystemExit if one does not exist."""
    for assignment in assignments:
        path, _, text = assignment.partition("=")
        name, _, constant = path.rpartition(".")
        module = importlib.import_module(f"reasoning_gym_environment.{name}")
        value = json.loads(text)
        if type(getattr(module, constant, None)) is not type(value):
            raise SystemExit(f"error: {path} is not a {type(value).__name__}")
        setattr(module, constant, value)


if __name__ == "__main__":
    end = sys.argv.index("--")
    replace_constants(sys.argv[1:end])
    sys.argv[1:] = sys.argv[end + 1 :]
    sys.exit(main())
