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

ARCHITECTURE.md follows one training group through them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .atropos.config import ReasoningGymEnvConfig as ReasoningGymEnvConfig
    from .demo.policy import SimulatedPolicy as SimulatedPolicy
    from .demo.server import PolicyServer as PolicyServer
    from .demo.server import build_tokenizer as build_tokenizer
    from .demo.trainer import ApiServer as ApiServer
    from .errors import ConfigurationError as ConfigurationError
    from .errors import FixableError as FixableError
    from .errors import GenerationError as GenerationError
    from .errors import PoolClosedError as PoolClosedError
    from .errors import WorkerStartError as WorkerStartError
    from .evaluation.comparison import compare as compare
    from .evaluation.comparison import comparison_table as comparison_table
    from .evaluation.estimators import share as share
    from .evaluation.store import read_results as read_results
    from .gym.asynchronous import AsyncReasoningGym as AsyncReasoningGym
    from .gym.asynchronous import TaskSummary as TaskSummary
    from .gym.blocking import ProblemStream as ProblemStream
    from .gym.blocking import ReasoningGym as ReasoningGym
    from .gym.containment import ContainedFunction as ContainedFunction
    from .gym.containment import contain as contain
    from .gym.streams import AsyncProblemStream as AsyncProblemStream
    from .problems.options import StreamOptions as StreamOptions
    from .reasoning_gym_environment import ReasoningGymEnv as ReasoningGymEnv
    from .records import Problem as Problem
    from .records import Recipe as Recipe
    from .records import Score as Score
    from .records import Status as Status
    from .records import Verdict as Verdict
    from .service.app import RewardService as RewardService
    from .service.app import ServiceSettings as ServiceSettings
    from .service.app import create_app as create_app
    from .storage.dumps import DumpContent as DumpContent
    from .storage.dumps import read_dump as read_dump
    from .storage.rows import StoredGroup as StoredGroup
    from .storage.rows import StoredRollout as StoredRollout
    from .tasks.decorator import task as task

_HOMES = {
    ".atropos.config": "ReasoningGymEnvConfig",
    ".demo.policy": "SimulatedPolicy",
    ".demo.server": "PolicyServer build_tokenizer",
    ".demo.trainer": "ApiServer",
    ".errors": "ConfigurationError FixableError GenerationError PoolClosedError WorkerStartError",
    ".evaluation.comparison": "compare comparison_table",
    ".evaluation.estimators": "share",
    ".evaluation.store": "read_results",
    ".gym.asynchronous": "AsyncReasoningGym TaskSummary",
    ".gym.blocking": "ProblemStream ReasoningGym",
    ".gym.containment": "ContainedFunction contain",
    ".gym.streams": "AsyncProblemStream",
    ".problems.options": "StreamOptions",
    ".reasoning_gym_environment": "ReasoningGymEnv",
    ".records": "Problem Recipe Score Status Verdict",
    ".service.app": "RewardService ServiceSettings create_app",
    ".storage.dumps": "DumpContent read_dump",
    ".storage.rows": "StoredGroup StoredRollout",
    ".tasks.decorator": "task",
}

__all__ = sorted(name for names in _HOMES.values() for name in names.split())


def __getattr__(name: str) -> Any:
    """Import a public name on first access: importing Atropos takes seconds."""
    if name == "__version__":
        from importlib.metadata import version  # slow

        return version("reasoning-gym-environment")
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(importlib.import_module(home, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
