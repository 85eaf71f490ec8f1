"""Train language models on reasoning-gym's tasks, with Atropos or from any trainer.

Example:
    from reasoning_gym_environment import ReasoningGym, ReasoningGymEnv, ReasoningGymEnvConfig

`__all__` names what is public, beside `integrations` and the commands. A package imports only from
itself and from packages listed before it:

    records, errors, util   vocabulary, shared errors, helpers
    tasks                   what reasoning-gym offers: catalogue, ladders, facts, chance floors
    scoring                 from a completion's text to a reward: extraction, guards, grading
    sandbox                 worker processes that run the library, and their containment
    problems                which problem comes next: sampler, curriculum, stream
    storage                 groups on disk: rows, dumps, rescoring, export
    gym                     problems and scores for any trainer, in Python; `contain`
    service                 the same over HTTP
    inference               client library for inference servers
    rollouts                one group: completions, grades, accounting, retries
    integrations            Inspect, NeMo Gym, OpenEnv, SkyRL, Tinker, TRL, verifiers, verl
    evaluation              plan, run, store, metrics, comparison
    report, proof           a page of rollouts; whether tasks are fit to train on
    settings                all options; command line, help and checks are made from them
    atropos                 everything that imports atroposlib or wandb
    reasoning_gym_environment   ReasoningGymEnv, which holds the parts
    demo                    a simulated policy behind real HTTP
    commands, cli           one command per module

docs/architecture.md follows one training group through them.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .atropos.config import ReasoningGymEnvConfig
    from .demo.policy import SimulatedPolicy
    from .demo.server import PolicyServer, build_tokenizer
    from .demo.trainer import ApiServer
    from .errors import (
        ConfigurationError,
        FixableError,
        GenerationError,
        PoolClosedError,
        WorkerStartError,
    )
    from .evaluation.comparison import compare, comparison_table
    from .evaluation.estimators import share
    from .evaluation.store import read_results
    from .gym.asynchronous import AsyncProblemStream, AsyncReasoningGym, TaskSummary
    from .gym.blocking import ProblemStream, ReasoningGym
    from .gym.containment import ContainedFunction, contain
    from .problems.options import StreamOptions
    from .reasoning_gym_environment import ReasoningGymEnv
    from .records import Problem, Recipe, Score, Status, Verdict
    from .service.app import RewardService, ServiceSettings, create_app
    from .storage.dumps import DumpContent, read_dump
    from .storage.rows import StoredGroup, StoredRollout
    from .tasks.decorator import task

__all__ = [
    "ApiServer",
    "AsyncProblemStream",
    "AsyncReasoningGym",
    "ConfigurationError",
    "ContainedFunction",
    "DumpContent",
    "FixableError",
    "GenerationError",
    "PolicyServer",
    "PoolClosedError",
    "Problem",
    "ProblemStream",
    "ReasoningGym",
    "ReasoningGymEnv",
    "ReasoningGymEnvConfig",
    "Recipe",
    "RewardService",
    "Score",
    "ServiceSettings",
    "SimulatedPolicy",
    "Status",
    "StoredGroup",
    "StoredRollout",
    "StreamOptions",
    "TaskSummary",
    "Verdict",
    "WorkerStartError",
    "build_tokenizer",
    "compare",
    "comparison_table",
    "contain",
    "create_app",
    "read_dump",
    "read_results",
    "share",
    "task",
]

_HOMES = {
    ".atropos.config": {"ReasoningGymEnvConfig"},
    ".demo.policy": {"SimulatedPolicy"},
    ".demo.server": {"PolicyServer", "build_tokenizer"},
    ".demo.trainer": {"ApiServer"},
    ".errors": {
        "ConfigurationError",
        "FixableError",
        "GenerationError",
        "PoolClosedError",
        "WorkerStartError",
    },
    ".evaluation.comparison": {"compare", "comparison_table"},
    ".evaluation.estimators": {"share"},
    ".evaluation.store": {"read_results"},
    ".gym.asynchronous": {"AsyncProblemStream", "AsyncReasoningGym", "TaskSummary"},
    ".gym.blocking": {"ProblemStream", "ReasoningGym"},
    ".gym.containment": {"ContainedFunction", "contain"},
    ".problems.options": {"StreamOptions"},
    ".reasoning_gym_environment": {"ReasoningGymEnv"},
    ".records": {"Problem", "Recipe", "Score", "Status", "Verdict"},
    ".service.app": {"RewardService", "ServiceSettings", "create_app"},
    ".storage.dumps": {"DumpContent", "read_dump"},
    ".storage.rows": {"StoredGroup", "StoredRollout"},
    ".tasks.decorator": {"task"},
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Import a public name on first access: importing Atropos takes seconds."""
    if name == "__version__":
        from importlib.metadata import version  # slow

        return version("reasoning-gym-environment")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
