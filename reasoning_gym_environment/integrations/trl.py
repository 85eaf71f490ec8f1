"""Adapts problems and scores to TRL: a dataset and a reward function for `GRPOTrainer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from datasets import Dataset

from ..gym.blocking import ReasoningGym
from ..records import Problem
from ..rollouts.demonstrations import problem_row
from .shared import recipe_of

TRLCompletion = str | Sequence[Mapping[str, Any]]
"""A text; or messages, where the prompt is messages."""


def problem_dataset(problems: Iterable[Problem], *, system_prompt: str = "think") -> Dataset:
    """Make a dataset for `GRPOTrainer`: a row of `problem_row` for each problem.

    Args:
        system_prompt: "think", "direct" or a text, which has to say the answer format.

    Returns:
        Prompts are messages. Recipes are JSON text, since Arrow would fill every row's parameters
        with those of all other tasks.
    """
    return Dataset.from_list([problem_row(problem, system_prompt) for problem in problems])


class ReasoningGymReward:
    """Scores completions for `GRPOTrainer(reward_funcs=…)`; the dataset needs a column `recipe`.

    TRL calls it with a batch, which may hold parts of groups: there is no penalty over groups.

    Example:
        with ReasoningGym() as gym:
            dataset = problem_dataset(gym.problems("chain_sum", count=1000))
            trainer = GRPOTrainer(model, ReasoningGymReward(gym), train_dataset=dataset)
            trainer.train()
    """

    def __init__(self, gym: ReasoningGym) -> None:
        self._gym = gym

    async def __call__(
        self,
        *,
        completions: Sequence[TRLCompletion],
        recipe: Sequence[str],
        log_extra: Callable[[str, list[str]], None],
        **_: object,
    ) -> list[float | None]:
        """Score each completion in [0, 1]; None, which is unscored, gets no advantage from TRL.

        What became of each is logged as the column `status` beside TRL's completions.

        Raises:
            ConfigurationError: what should be a recipe is none.
        """
        texts = map(text_of, completions)
        pairs = list(zip(map(recipe_of, recipe), texts, strict=True))
        scores = await asyncio.to_thread(self._gym.score_many, pairs)
        log_extra("status", [score.status.value for score in scores])
        return [score.score for score in scores]


def text_of(completion: TRLCompletion) -> str:
    """Give what the model said last; it may be empty where the trainer takes the thought out."""
    return completion if isinstance(completion, str) else completion[-1].get("content") or ""
