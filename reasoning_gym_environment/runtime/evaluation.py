"""The fixed evaluation set and what is reported about it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from tqdm import tqdm

from ..core.metrics import summarise
from ..core.records import (
    Attempt,
    Completion,
    GroupResult,
    Problem,
    Recipe,
    Reward,
    Status,
    Verdict,
)
from .errors import GenerationError
from .task_pool import TaskPool

logger = logging.getLogger(__name__)

Sample = Callable[[Problem], Awaitable[GroupResult]]
"""Asks for a completion of a problem and scores it; raises SampleError when it gets none."""


class SampleError(RuntimeError):
    """There is no completion to score, for the reason given."""


async def with_progress(jobs: Sequence[Coroutine[Any, Any, Any]], description: str) -> list[Any]:
    """Await all jobs; a progress bar on a terminal. The first failure cancels the others."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    with tqdm(total=len(tasks), desc=description, disable=None) as bar:
        for task in tasks:
            task.add_done_callback(lambda _: bar.update())
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise


async def build_evaluation_set(pool: TaskPool, recipes: Sequence[Recipe]) -> list[Problem]:
    """Make the problems of the evaluation set; one that can't be made is left out, loudly."""

    async def make(recipe: Recipe) -> Problem | None:
        try:
            return await pool.generate(recipe)
        except GenerationError as error:
            logger.warning("The evaluation set lacks an item: %s", error)
            return None

    problems = await with_progress([make(r) for r in recipes], "evaluation set")
    return [problem for problem in problems if problem is not None]


async def run_evaluation(
    problems: Sequence[Problem], sample: Sample, *, concurrency: int
) -> list[GroupResult]:
    """Evaluate every problem, at most `concurrency` at a time, in the order given.

    A problem without a completion becomes one unscored sample.
    """
    places = asyncio.Semaphore(concurrency)

    async def one(problem: Problem) -> GroupResult:
        async with places:
            try:
                return await sample(problem)
            except SampleError as error:
                logger.warning("Evaluation of %s: %s", problem.recipe.task, error)
                return unscored_group(problem, str(error))

    return await with_progress([one(p) for p in problems], "evaluation")


def unscored_group(problem: Problem, reason: str) -> GroupResult:
    """Stands for a sample whose completion the server did not give."""
    completion = Completion(text="", tokens=(), masks=(), logprobs=None, finish_reason="error")
    verdict = Verdict(score=None, status=Status.UNSCORED, detail=reason)
    reward = Reward(value=0.0, score=None)
    attempt = Attempt(completion=completion, answer=None, verdict=verdict, reward=reward)
    return GroupResult(problem=problem, attempts=(attempt,))


def evaluation_metrics(
    groups: Sequence[GroupResult], categories: Mapping[str, str]
) -> dict[str, float]:
    """`eval/percent_correct` and finer keys, as shares in [0, 1].

    Unscored samples count in `eval/status/unscored` alone.
    """
    means = summarise(groups, categories).values()
    metrics = {f"eval/{name}": value for name, value in means.items() if "groups/" not in name}
    if "eval/solved" in metrics:
        metrics["eval/percent_correct"] = metrics["eval/solved"]
    return metrics


def headline(metrics: Mapping[str, float]) -> str:
    """The evaluation in one line."""
    names = ("percent_correct", "score", "truncated", "status/unscored")
    known = [name for name in names if f"eval/{name}" in metrics]
    return ", ".join(f"{name} {metrics[f'eval/{name}']:.3f}" for name in known)
