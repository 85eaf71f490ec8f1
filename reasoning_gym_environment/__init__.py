"""Train language models on reasoning-gym's tasks, with Atropos or from any trainer.

Example:
    from reasoning_gym_environment import ReasoningGym, ReasoningGymEnv, ReasoningGymEnvConfig

The packages, each of which imports from itself and from those before it:

    records, errors, util   the vocabulary, shared failures, what isn't about the subject
    tasks                   what reasoning-gym offers: catalogue, ladders, facts, chance floors
    scoring                 from a text to a reward: extraction, guards, grading
    workers                 the processes in which the library runs, and what contains them
    problems                which problem comes next: sampler, curriculum, stream
    storage                 groups on disk: rows, dumps, rescoring, export
    gym                     problems and scores for any trainer, in Python
    rewards                 the same over HTTP
    rollouts                one group: prompt, completions, grades, counts
    integrations            TRL, verifiers, NeMo Gym, Inspect
    evaluation              plan, run, store, metrics, comparison
    report, audit           a page of rollouts; what every verifier pays for
    settings                all options: command line, help and checks are made from them
    atropos                 all that speaks atroposlib or wandb
    reasoning_gym_environment   ReasoningGymEnv, which holds the parts
    demo                    a simulated policy behind real HTTP
    commands, cli           one command a file

docs/architecture.md follows one training group through them.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .atropos.config import ReasoningGymEnvConfig
    from .gym.asynchronous import AsyncReasoningGym
    from .gym.blocking import ReasoningGym
    from .reasoning_gym_environment import ReasoningGymEnv
    from .storage.dumps import read_dump

__all__ = [
    "AsyncReasoningGym",
    "ReasoningGym",
    "ReasoningGymEnv",
    "ReasoningGymEnvConfig",
    "read_dump",
]

_HOMES = {
    "AsyncReasoningGym": ".gym.asynchronous",
    "ReasoningGym": ".gym.blocking",
    "ReasoningGymEnv": ".reasoning_gym_environment",
    "ReasoningGymEnvConfig": ".atropos.config",
    "read_dump": ".storage.dumps",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: Atropos takes seconds to import."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
