"""Failures named after the boundary they crossed."""

from __future__ import annotations

from ..errors import FixableError


class WorkerStartError(FixableError):
    """A worker process did not come up."""


class WorkerLostError(RuntimeError):
    """A worker process died, or was killed at its deadline, with a request under way."""


class WorkerTimeoutError(WorkerLostError):
    """A worker process was killed at its deadline."""


class GenerationError(RuntimeError):
    """A recipe could not be made into a problem."""


class PoolClosedError(RuntimeError):
    """Work was asked of a task pool that is closed."""
