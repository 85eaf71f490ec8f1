"""Unscored completions in trainers whose rewards must be numbers: verl and SkyRL."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..records import Score

__all__ = ["among_scored"]

UNSCORED_REWARD = -1e-30
"""A 0 for every estimator of advantages but those of `among_scored`, also after sums with zeros.
Below 0, since SkyRL counts what is above as solved."""

LARGEST_UNSCORED = -1e-20
"""Rewards between this one and 0 are unscored, whatever the precision; verifiers give none."""

Estimator = Callable[..., tuple[Any, Any]]


def reward_of(score: Score) -> float:
    """Return a score's number, or UNSCORED_REWARD."""
    return UNSCORED_REWARD if score.score is None else score.score


def among_scored(estimator: Estimator) -> Estimator:
    """Return an estimator of advantages, such as GRPO's, which leaves unscored completions out.

    Their advantage is 0, and that of the others is what it is without them. If one completion alone
    is left of a group, its advantage is 0 as well.

    Args:
        estimator: takes the tensors `token_level_rewards` and `response_mask`, which have a row
            for each completion, and the array `index` of their groups; returns two such tensors.
    """

    @functools.wraps(estimator)
    def estimate(
        *, token_level_rewards: Any, response_mask: Any, index: Any, **options: Any
    ) -> tuple[Any, Any]:
        rewards = token_level_rewards.sum(-1).tolist()
        is_scored = [not LARGEST_UNSCORED < reward < 0 for reward in rewards]
        sizes = Counter(index)
        scored_sizes = Counter(
            group for group, scored in zip(index, is_scored, strict=True) if scored
        )
        rows = []
        for row, group in enumerate(index):
            is_left_alone = scored_sizes[group] == 1 < sizes[group]
            if is_scored[row] and not is_left_alone:
                rows.append(row)
        advantages = token_level_rewards.new_zeros(token_level_rewards.shape)
        returns = advantages.clone()
        if rows:
            advantages[rows], returns[rows] = estimator(
                token_level_rewards=token_level_rewards[rows],
                response_mask=response_mask[rows],
                index=index[rows],
                **options,
            )
        return advantages, returns

    return estimate
