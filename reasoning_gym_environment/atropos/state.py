"""Where a run is: what the API said, and what follows from that and from the settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigurationError
from .config import ReasoningGymEnvConfig
from .trainer_api import Registration

logger = logging.getLogger(__name__)


class RunState:
    """The registration of a run, its step and the trainer's status. The run alone changes it.

    Attributes:
        run_id: identifies the run in everything it stores.
        step: the trainer's step; in `process` the number of groups that are done.
        registration: what the API answered; None without a trainer.
        status: the API's last answer to `/status-env`.
    """

    def __init__(self, config: ReasoningGymEnvConfig, run_id: str) -> None:
        self.run_id = run_id
        self.step = 0
        self.registration: Registration | None = None
        self.status: dict[str, Any] = {}
        self._config = config

    def begin(self, registration: Registration) -> None:
        """Take what the API answered, and its trainer's step."""
        self.registration = registration
        self.step = registration.starting_step

    def take_status(self, status: dict[str, Any]) -> None:
        """Take the trainer's status, and its step."""
        self.status = status
        self.step = status["current_step"]

    def count_step(self) -> None:
        """Count a group of `process`."""
        self.step += 1

    @property
    def trainer_step(self) -> int | None:
        """The trainer's step; None without a trainer."""
        return None if self.registration is None else self.step

    @property
    def length_limit(self) -> int:
        """Tokens of prompt and completion; the API drops groups with a row of `max_token_len`."""
        limit: int = self._config.max_token_length
        trainer_limit = self.max_token_len
        return min(limit, trainer_limit - 1) if trainer_limit > 0 else limit

    @property
    def max_token_len(self) -> int:
        """The trainer's limit of tokens, which no row may reach; none at 0 or less."""
        return -1 if self.registration is None else self.registration.max_token_len

    @property
    def batch_size(self) -> int:
        """Rows of the trainer's batch; -1 if neither it nor the settings say."""
        if self.registration is not None and self.registration.batch_size != -1:
            return self.registration.batch_size
        size: int = self._config.batch_size
        return size

    @property
    def total_steps(self) -> int:
        """Steps after which the training ends: the fewer of ours and the trainer's; -1 for none."""
        trainer_steps = self.registration.trainer_steps if self.registration else -1
        counts = (self._config.total_steps, trainer_steps)
        return min((steps for steps in counts if steps >= 0), default=-1)

    @property
    def replica(self) -> str:
        """The name by which streams of one seed differ: the API's, or the configured one."""
        return (
            self.registration.name if self.registration else str(self._config.replica)
        )

    @property
    def checkpoint_interval(self) -> int:
        """Steps between checkpoints; none at 0 or less."""
        registration = self.registration
        return -1 if registration is None else registration.checkpoint_interval

    @property
    def token_limit(self) -> str:
        """What limits the tokens of prompt and completion, for messages."""
        if self.length_limit < self._config.max_token_length:
            return f"the trainer's max_token_len {self.max_token_len}"
        return f"max_token_length {self._config.max_token_length}"

    def is_over(self) -> bool:
        """Return whether the API has handed out, or keeps for the trainer, all of its batches."""
        return self.step >= self.total_steps

    def require_fitting_limits(self) -> None:
        """Warn of what the trainer's limits change; raise ConfigurationError if nothing fits."""
        config = self._config
        if config.group_size > self.batch_size:
            raise ConfigurationError(
                f"group_size ({config.group_size}) must be at most the trainer's batch_size "
                f"({self.batch_size}): lower --env.group_size"
            )
        if self.total_steps == -1:
            raise ConfigurationError(
                "neither total_steps nor the trainer says when training ends: set --env.total_steps"
            )
        trainer_steps = self.registration.trainer_steps if self.registration else -1
        if self.total_steps < trainer_steps:
            logger.warning(
                "This environment ends after step %d, the trainer wants %d: set --env.total_steps, "
                "-1 for the trainer's",
                self.total_steps,
                trainer_steps,
            )
        if self.length_limit < config.max_token_length:
            logger.warning(
                "max_token_length %d becomes %d: rows must be shorter than %s",
                config.max_token_length,
                self.length_limit,
                self.token_limit,
            )

    def tell_inherited(self, url: str) -> None:
        """Say which run the API at this address is in, since a second trainer can't change it."""
        registration = self.registration
        assert registration is not None, "`begin` comes first"
        logger.log(
            logging.WARNING if self.is_over() else logging.INFO,
            "The Atropos API at %s is at step %d of %d, with batches of %d and the folder %r: the "
            "first trainer's since `run-api` started. A later trainer inherits them: restart "
            "`run-api` before a second run",
            url,
            self.step,
            self.total_steps,
            self.batch_size,
            registration.checkpoint_dir,
        )

    def identity(self, versions: Mapping[str, str]) -> dict[str, Any]:
        """Return the keys of stored rows that identify the run.

        Args:
            versions: of the libraries, by name.
        """
        return {
            "run": self.run_id,
            "replica": self.replica,
            "library_versions": dict(versions),
        }
