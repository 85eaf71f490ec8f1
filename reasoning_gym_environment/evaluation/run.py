"""Asks for every item of the evaluation set and keeps what comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from ..records import Attempt, Completion, GroupResult, Problem, Reward, Status, Verdict
from ..util.progress import with_progress
from .plan import EvaluationItem

logger = logging.getLogger(__name__)

Sample = Callable[[Problem], Awaitable[GroupResult]]
"""Asks for the completions of a problem and scores them; raises SampleError without any."""

Keep = Callable[[EvaluationItem, GroupResult], Awaitable[None]]
"""Stores a sample; when it returns, the sample is safe."""


class SampleError(RuntimeError):
    """There are no completions to score, for the reason given."""


async def run_evaluation(
    items: Sequence[EvaluationItem],
    sample: Sample,
    keep: Keep,
    *,
    attempts: int,
    concurrency: int,
    done: int = 0,
) -> None:
    """Evaluate every item and keep its sample; one without completions is kept as unscored.

    Args:
        attempts: completions of an item.
        concurrency: completions asked for at once; a single item may exceed it.
        done: items that were evaluated before, for the progress bar.
    """
    places = asyncio.Semaphore(max(1, concurrency // attempts))

    async def one(item: EvaluationItem) -> None:
        async with places:
            try:
                group = await sample(item.problem)
            except SampleError as error:
                logger.warning("Evaluation of %s: %s", item.problem.recipe.task, error)
                group = unscored_group(item.problem, str(error), attempts=attempts)
            await keep(item, group)

    await with_progress([one(item) for item in items], "evaluation", done=done)


def unscored_group(problem: Problem, reason: str, *, attempts: int) -> GroupResult:
    """Stands for the completions that the server did not give."""
    completion = Completion(text="", tokens=(), masks=(), logprobs=None, finish_reason="error")
    verdict = Verdict(score=None, status=Status.UNSCORED, detail=reason)
    reward = Reward(value=0.0, score=None)
    attempt = Attempt(completion=completion, answer=None, verdict=verdict, reward=reward)
    return GroupResult(problem=problem, attempts=(attempt,) * attempts)
