"""What a checkpoint of the environment holds, and how a run continues one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ..errors import FixableError
from ..problems.training import TrainingProblems
from ..records import Problem
from ..storage.checkpoints import STREAM, Checkpoints
from .config import ReasoningGymEnvConfig

logger = logging.getLogger(__name__)


class Resumable(Protocol):
    """What checkpoints need of the environment; Atropos named most fields."""

    config: ReasoningGymEnvConfig
    curr_step: int
    wandb_prepend: str | None
    checkpoint_dir: str | None
    backlog: list[Any]
    running_items: dict[str, dict[str, Any]]

    @property
    def checkpoints(self) -> Checkpoints:
        """This replica's checkpoints."""

    def started_problems(self) -> TrainingProblems:
        """Return the training stream, started."""


def checkpoint(env: Resumable) -> dict[str, Any]:
    """Return the stream's state: a resumed run starts with what was not trained on."""
    items: Iterable[Any] = [
        *(entry["item"] for entry in env.running_items.values()),
        *env.backlog,
    ]
    unfinished = [item for item in items if isinstance(item, Problem)]
    return {STREAM: env.started_problems().state_dict(unfinished)}


def continue_checkpoint(env: Resumable) -> Mapping[str, Any]:
    """Continue the newest checkpoint up to the trainer's step; return what a subclass saved.

    Raises:
        FixableError: the checkpoint can't be continued.
    """
    path = env.checkpoints.newest(env.curr_step)
    if path is None:
        logger.warning(
            "No checkpoint for step %s of %s below %r: starting the training stream from the "
            "beginning",
            env.curr_step,
            env.wandb_prepend,
            str(env.checkpoint_dir),
        )
        return {}
    accept_changed = env.config.accept_changed_modules
    try:
        content = env.checkpoints.read(path, accept_changed=accept_changed)
        env.started_problems().load_state_dict(content.pop(STREAM))
    except ValueError as error:
        raise FixableError(
            f"the checkpoint {path} can't be continued: {error}; delete it to continue the one "
            "before it or, without one, to restart the training stream"
        ) from error
    logger.info("Continued %s at the trainer's step %d", path, env.curr_step)
    return content
