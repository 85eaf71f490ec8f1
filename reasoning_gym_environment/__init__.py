"""Train language models on reasoning-gym's tasks with Atropos.

Example:
    from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import ReasoningGymEnvConfig
    from .reasoning_gym_environment import ReasoningGymEnv
    from .storage.dumps import read_dump

__all__ = ["ReasoningGymEnv", "ReasoningGymEnvConfig", "read_dump"]

_HOMES = {
    "ReasoningGymEnv": ".reasoning_gym_environment",
    "ReasoningGymEnvConfig": ".config",
    "read_dump": ".storage.dumps",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: Atropos takes seconds to import."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
