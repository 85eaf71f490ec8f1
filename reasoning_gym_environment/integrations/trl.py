"""Datasets and a reward function for TRL's `GRPOTrainer`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Annotated, Any

from datasets import Dataset, IterableDataset
from pydantic import InstanceOf

from ..gym.arguments import AS_LIST, checked
from ..gym.blocking import ProblemStream, ReasoningGym
from ..inference.thoughts import ThoughtFormat
from ..records import Problem
from ..scoring.extraction import AnswerFormat
from .shared import parse_recipe, problem_row

__all__ = ["ReasoningGymReward", "problem_dataset", "stream_dataset"]

logger = logging.getLogger(__name__)

FAR_AHEAD = 900
"""Problems before the first score that suggest a shuffle buffer."""

TRLCompletion = str | Sequence[Mapping[str, Any]]
"""A text, or messages if the prompt is messages."""


@checked
def problem_dataset(
    problems: Annotated[Iterable[InstanceOf[Problem]], AS_LIST],
    *,
    system_prompt: str = "think",
    answer_format: AnswerFormat = "tags",
) -> Dataset:
    """Return a dataset for `GRPOTrainer`, with a row of `problem_row` for each problem.

    Prompts are messages. Recipes are JSON text, since Arrow would add the parameters of all other
    tasks to every row.

    Args:
        system_prompt, answer_format: as of `problem_row`; the format is the gym's that scores.
    """
    return Dataset.from_list(
        [problem_row(problem, system_prompt, answer_format) for problem in problems]
    )


@checked
def stream_dataset(
    stream: ProblemStream, *, system_prompt: str = "think"
) -> IterableDataset:
    """Return an endless dataset for `GRPOTrainer` with the problems of a stream.

    The stream learns from a `ReasoningGymReward` of its gym. `GRPOConfig` needs `max_steps` and
    `shuffle_dataset=False`: TRL would take 1,000 problems in advance to shuffle them.
    """
    return IterableDataset.from_generator(_Rows(stream, system_prompt))


class _Rows:
    """Yields a stream's rows. `datasets` pickles it for a fingerprint, which no stream allows."""

    def __init__(self, stream: ProblemStream, system_prompt: str) -> None:
        self._stream = stream
        self._system_prompt = system_prompt

    def __call__(self) -> Iterator[dict[str, Any]]:
        for number, problem in enumerate(self._stream):
            if (
                number == FAR_AHEAD
                and "sampling/fresh_with_signal" not in self._stream.sampling()
            ):
                logger.warning(
                    "TRL took %d problems before it scored one, so levels can't follow: set "
                    "shuffle_dataset=False in GRPOConfig",
                    number,
                )
            yield problem_row(problem, self._system_prompt, self._stream.answer_format)

    def __getstate__(self) -> int:
        return id(self)


class ReasoningGymReward:
    """A reward function for `GRPOTrainer(reward_funcs=…)`; the dataset needs a column `recipe`.

    Streams of the same gym learn from its scores. TRL passes batches that may contain partial
    groups, so there are no group penalties.

    Args:
        tokenizer: of the model. TRL decodes completions without special tokens, which mark the
            thoughts of Gemma, Mistral, Seed and gpt-oss: with a tokenizer, the token ids are read
            instead.

    Example:
        with ReasoningGym() as gym:
            dataset = problem_dataset(gym.problems("chain_sum", count=1000))
            trainer = GRPOTrainer(model, ReasoningGymReward(gym), train_dataset=dataset)
            trainer.train()
    """

    @checked
    def __init__(self, gym: ReasoningGym, tokenizer: Any = None) -> None:
        self._gym = gym
        self._thoughts = None if tokenizer is None else ThoughtFormat(tokenizer)

    async def __call__(
        self,
        *,
        completions: Sequence[TRLCompletion],
        recipe: Sequence[str],
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_extra: Callable[[str, list[str]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **_: object,
    ) -> list[float | None]:
        """Return each completion's score in [0, 1], or None, to which TRL gives no advantage.

        Logs each status in the column `status` of TRL's completions, and the mean level as the
        metric `level`. Can be called outside of TRL, with completions and recipes alone. Streams
        take TRL's `num_generations` as their group size.

        Raises:
            ConfigurationError: a recipe is invalid, or its stream has another group size.
        """
        texts = [text_of(completion) for completion in completions]
        if self._thoughts is not None and completion_ids is not None:
            decoded = map(self._thoughts.decode, completion_ids)
            texts = [self._thoughts.text(text) for text in decoded]
        pairs = list(zip(map(parse_recipe, recipe), texts, strict=True))
        # TRL passes its configuration to no reward function: its trainer's method knows it.
        trainer = getattr(log_metric, "__self__", None)
        group_size = getattr(trainer, "num_generations", None)
        scores = await asyncio.to_thread(
            self._gym.score_many, pairs, group_size=group_size
        )
        levels = [
            level for recipe, _ in pairs if (level := recipe.get("level")) is not None
        ]
        if levels and log_metric is not None:
            log_metric("level", fmean(levels))
        if log_extra is not None:
            log_extra("status", [score.status.value for score in scores])
        return [score.score for score in scores]


def text_of(completion: TRLCompletion) -> str:
    """Return the text of the last message; may be empty if the trainer strips the thought."""
    return (
        completion
        if isinstance(completion, str)
        else completion[-1].get("content") or ""
    )
