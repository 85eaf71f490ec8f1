"""What a subclass of the environment may override, and how patient its run is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ..records import Completion, GroupResult, Problem


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What a subclass of the environment may override: its methods, as the run calls them."""

    next_item: Callable[[], Awaitable[Any]]
    collect: Callable[[Any], Awaitable[Any]]
    postprocess: Callable[[Any], Awaitable[Any]]
    score: Callable[[Problem, Sequence[Completion]], Awaitable[GroupResult]]
    keep_rollouts: Callable[[Any, Any], Awaitable[None]]
    cleanup: Callable[[], Awaitable[None]]
    evaluate: Callable[[], Coroutine[Any, Any, None]]
    log: Callable[[], Awaitable[None]]
    save_checkpoint: Callable[[int], None]
    load_checkpoint: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long and how often a run tries before it gives up.

    Attributes:
        reach_seconds: how long a server may take to come up at the start.
        failing_seconds: how long `process` and `evaluate` retry while all requests fail.
        outage_seconds: how long an evaluation does so while serving; training never stops.
        max_losses: failures in a row that end a run, see `failures.FailureCounts`.
    """

    reach_seconds: float
    failing_seconds: float
    outage_seconds: float
    max_losses: int
