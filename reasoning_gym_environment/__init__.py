"""Train language models on reasoning-gym's tasks, with Atropos or from any trainer.

Example:
    from reasoning_gym_environment import ReasoningGym, ReasoningGymEnv, ReasoningGymEnvConfig

`dir` lists what most programs need. The reference page names what else is public, in which modules.
A package imports only from itself and from packages listed before it:

    records, errors, util   vocabulary, shared errors, helpers
    tasks                   what reasoning-gym offers: catalogue, ladders, facts, floors
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
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .atropos.config import ReasoningGymEnvConfig as ReasoningGymEnvConfig
    from .errors import ConfigurationError as ConfigurationError
    from .evaluation.comparison import compare as compare
    from .evaluation.evaluate import evaluate as evaluate
    from .evaluation.evaluate import evaluate_async as evaluate_async
    from .evaluation.store import read_results as read_results
    from .gym.asynchronous import AsyncReasoningGym as AsyncReasoningGym
    from .gym.blocking import ProblemStream as ProblemStream
    from .gym.blocking import ReasoningGym as ReasoningGym
    from .gym.containment import contain as contain
    from .reasoning_gym_environment import ReasoningGymEnv as ReasoningGymEnv
    from .records import Problem as Problem
    from .records import Recipe as Recipe
    from .records import Score as Score
    from .records import Status as Status
    from .tasks.decorator import task as task

    __version__: str

_HOMES = {
    ".atropos.config": "ReasoningGymEnvConfig",
    ".errors": "ConfigurationError",
    ".evaluation.comparison": "compare",
    ".evaluation.evaluate": "evaluate evaluate_async",
    ".evaluation.store": "read_results",
    ".gym.asynchronous": "AsyncReasoningGym",
    ".gym.blocking": "ProblemStream ReasoningGym",
    ".gym.containment": "contain",
    ".reasoning_gym_environment": "ReasoningGymEnv",
    ".records": "Problem Recipe Score Status",
    ".tasks.decorator": "task",
}

_MOVED = {
    ".demo.policy": "SimulatedPolicy",
    ".demo.server": "PolicyServer build_tokenizer",
    ".demo.trainer": "ApiServer",
    ".errors": "FixableError GenerationError PoolClosedError WorkerStartError",
    ".evaluation.comparison": "comparison_table",
    ".evaluation.estimators": "share",
    ".gym.asynchronous": "TaskSummary",
    ".gym.containment": "ContainedFunction",
    ".gym.streams": "AsyncProblemStream",
    ".problems.options": "StreamOptions",
    ".records": "Verdict",
    ".service.app": "RewardService ServiceSettings create_app",
    ".storage.dumps": "DumpContent read_dump",
    ".storage.rows": "StoredGroup StoredRollout",
}
"""What release 0.4 had here; from release 0.6 on it is in these modules alone."""

__all__ = sorted(name for names in _HOMES.values() for name in names.split())


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


# To a type checker every name would be Any, and no misspelled one an error.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name on first access: importing Atropos takes seconds."""
        if name == "__version__":
            from importlib.metadata import version  # slow

            return version("reasoning-gym-environment")
        for home, names in (*_HOMES.items(), *_MOVED.items()):
            if name not in names.split():
                continue
            if name not in __all__:
                warnings.warn(
                    f"{name} has moved: import it from {__name__}{home}",
                    DeprecationWarning,
                    stacklevel=2,
                )
            return getattr(importlib.import_module(home, __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
