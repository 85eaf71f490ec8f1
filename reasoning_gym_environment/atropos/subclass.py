"""What a subclass of the environment overrides and returns: what can't work is refused.

A method that is never called, or a return value that nobody can use, would cost inference for as
long as the run lasts.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any

from atroposlib.envs.base import BaseEnv

from ..errors import ConfigurationError
from ..records import Completion, GroupResult, Problem

_PAGE = "see docs/subclass.md"


NOT_CALLED = {
    "handle_send_to_api": "postprocess_histories",
    "_send_scored_data_to_api": "postprocess_histories",
    "handle_env": "collect_trajectories",
    "add_train_workers": "get_next_item",
    "env_step_checks": "evaluate, save_checkpoint or wandb_log",
    "get_status": "wandb_log",
    "setup_wandb": "setup",
    "register_env": "setup",
    "_register_env": "setup",
    "get_server_info": "setup",
    "perf_stats": "wandb_log",
    "_extract_final_answer": "score",
    "_score_answer_with_both_formats": "score",
    "rollout_and_score_eval": "evaluate",
    "_get_task_names": "get_next_item",
    "_get_complexity_params_for_task": "get_next_item",
}
"""Methods of Atropos's base class and of the upstream environment that the run does not call, and
what to override instead."""


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
    for name, instead in NOT_CALLED.items():
        # What collects its own groups, or overrides the other method, may have such helpers.
        is_helper = not hasattr(BaseEnv, name) and (collects or overrides(instead))
        if overrides(name) and not is_helper:
            raise ConfigurationError(
                f"{subclass.__name__}.{name} would never be called: override {instead}, {_PAGE}"
            )


def not_called(name: str) -> Any:
    """Return a method that raises NotImplementedError, and says what the run calls instead."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__}.{name} does nothing here, since the environment has its own "
            f"loop: await env_manager, process_manager or evaluate; to change what they do, "
            f"override {NOT_CALLED[name]}, {_PAGE}"
        )

    return refuse


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


async def checked_groups(
    collected: Any, postprocess: Callable[[Any], Awaitable[Any]], name: str
) -> tuple[Any, list[Any]]:
    """Return the groups that an item's collection gave, after postprocessing, and its backlog.

    None means that nothing was collected, [] that postprocessing has dropped it.

    Args:
        collected: what `collect_trajectories` of a class returned.
        name: of the class.

    Raises:
        ConfigurationError: a method returned what is no group, list of groups or None.
    """
    is_pair = isinstance(collected, tuple) and len(collected) == 2
    if not is_pair or not isinstance(collected[1], list | None):
        raise ConfigurationError(
            f"{name}.collect_trajectories must return its groups and a list of items for the "
            f"backlog, as `group, []`, got {collected!r:.80}"
        )
    groups, backlog = collected
    if not groups:
        return None, backlog or []
    groups = await postprocess(groups) or []
    as_list = groups if isinstance(groups, list) else [groups]
    wrong = [group for group in as_list if not isinstance(group, dict | None)]
    if wrong:
        raise ConfigurationError(
            f"{name} must return a ScoredDataGroup, a list of them or None, from "
            f"collect_trajectories or postprocess_histories, got {wrong[0]!r:.80}"
        )
    return groups, backlog or []
