"""What a subclass of the environment overrides and returns: what can't work is refused.

Atropos's loop logs what a worker raises and takes the next item, so a bug in a subclass would cost
inference for as long as the run lasts.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..errors import ConfigurationError
from ..records import Completion, GroupResult, Problem
from ..util.outages import LogThrottle

logger = logging.getLogger(__name__)

_PAGE = "see docs/subclass.md"

PATIENCE_WITH_FILTERS = 10
"""An item that gives nothing may have been filtered out, so that more of them are allowed."""


def require_used(subclass: type[Any], base: type[Any]) -> None:
    """Raise ConfigurationError if a class overrides what is called otherwise, or never."""

    def overrides(name: str) -> bool:
        return getattr(subclass, name, None) is not getattr(base, name, None)

    collects = overrides("collect_trajectories") or overrides("collect_trajectory")
    signature = inspect.signature(subclass.score)
    try:
        signature.bind("self", "problem", "completions")
    except TypeError:
        if not collects:  # else it calls its own
            raise ConfigurationError(
                f"{subclass.__name__}.score must take (self, problem, completions) and return a "
                f"GroupResult, got {signature}: {_PAGE}"
            ) from None
    never_called = (
        ("handle_send_to_api", "_send_scored_data_to_api"),
        ("score", "_extract_final_answer", "_score_answer_with_both_formats"),
        ("evaluate", "rollout_and_score_eval"),
        ("get_next_item", "_get_task_names", "_get_complexity_params_for_task"),
    )
    for instead, *names in never_called:
        for name in filter(overrides, names):
            if not (overrides(instead) or collects):
                raise ConfigurationError(
                    f"{subclass.__name__}.{name} would never be called: override {instead}, {_PAGE}"
                )


def require_problem(item: Any, tasks: Container[str], name: str) -> None:
    """Raise ConfigurationError if an item is none of this environment's problems."""
    if not isinstance(item, Problem) or item.recipe.task not in tasks:
        raise ConfigurationError(
            f"get_next_item of {name} returned an item of its own, {item!r:.80}: override "
            f"collect_trajectories or collect_trajectory as well, {_PAGE}"
        )


def checked_score(
    group: Any, completions: Sequence[Completion], name: str
) -> GroupResult:
    """Return what `score` of a class returned; raises ConfigurationError."""
    if (
        not isinstance(group, GroupResult)
        or len(group.attempts) != len(completions)
        or not all(map(math.isfinite, group.rewards))
    ):
        raise ConfigurationError(
            f"{name}.score must return a GroupResult with one attempt and a finite reward for each "
            f"of the {len(completions)} completions, got {group!r:.80}: return "
            "group.with_rewards(…) of what super().score gives"
        )
    return group


async def collect_groups(env: Any, item: Any) -> tuple[Any, list[Any]]:
    """Return what an environment collects of an item, after its postprocessing, and its backlog.

    Raises ConfigurationError if a method returns what is no group, list of groups or None. None
    means that nothing was collected, [] that postprocessing has dropped it.
    """
    name = type(env).__name__
    collected = await env.collect_trajectories(item)
    is_pair = isinstance(collected, tuple) and len(collected) == 2
    if not is_pair or not isinstance(collected[1], list | None):
        raise ConfigurationError(
            f"{name}.collect_trajectories must return its groups and a list of items for the "
            f"backlog, as `group, []`, got {collected!r:.80}"
        )
    groups, backlog = collected
    if not groups:
        return None, backlog or []
    groups = await env.postprocess_histories(groups) or []
    as_list = groups if isinstance(groups, list) else [groups]
    wrong = [group for group in as_list if not isinstance(group, dict | None)]
    if wrong:
        raise ConfigurationError(
            f"{name} must return a ScoredDataGroup, a list of them or None, from "
            f"collect_trajectories or postprocess_histories, got {wrong[0]!r:.80}"
        )
    return groups, backlog or []


def why_nothing_delivered(
    groups: Any, backlog: list[Any], work: Mapping[str, int]
) -> str:
    """Say why an item's work has delivered no group; "" if it has, lost one, or more follows."""
    if groups is None and not backlog and not work["lost"]:
        return "nothing was collected: no group, or none with a score"
    failed = work["refused"] + work["send_failures"]
    if failed and failed == work["delivered"]:
        return "its groups were refused or not written: see the log"
    return ""


class FailureLimit:
    """Ends a run whose own methods fail for one item after the other.

    Args:
        name: the environment's class, for messages.
        max_items: items in a row that raise; PATIENCE_WITH_FILTERS as many may give nothing.
    """

    def __init__(self, name: str, max_items: int) -> None:
        self._name = name
        self._max_items = max_items
        self._throttle = LogThrottle()

    def record_success(self) -> None:
        self._throttle.record_success()

    def record_failure(self, error: Exception | str) -> ConfigurationError | None:
        """Log an exception, or why nothing was delivered; return the error that ends the run."""
        if isinstance(error, ConfigurationError):
            return error
        if isinstance(error, Exception):
            traceback = error
            max_items = self._max_items
            reason = f"{type(error).__name__}: {error}; the log has the traceback"
        else:
            traceback = None
            max_items = PATIENCE_WITH_FILTERS * self._max_items
            reason = error
        self._throttle.record_failure()
        if self._throttle.should_log:
            message = "%s failed: its group is lost: %s"
            logger.error(message, self._name, reason, exc_info=traceback)
        failures = self._throttle.failures
        if failures < max_items:
            return None
        return ConfigurationError(
            f"{self._name} failed for {failures} items in a row, {reason}"
        )
