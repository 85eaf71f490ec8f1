"""The same seeds give the same items, verdicts and rewards on a busy machine as on an idle one.

`make test-load` runs it: it takes the whole machine for some minutes.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

import pytest
from busy import busy_processes

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.records import Recipe, Status

pytestmark = [pytest.mark.load, pytest.mark.processes]

BUSY_PROCESSES = 12

SEEDS = (2, 3, 5)
SLOW_RECIPES = (
    # Of the default evaluation set's items, they need the most processor time: 3 and 6 s.
    Recipe(task="knight_swap", seed=5626399140911479),
    Recipe(task="futoshiki", seed=8797026087808995),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a trainer gets of a recipe: the item, and of each answer its status and reward.

    `error` says why there is no item.
    """

    question: str = ""
    oracle: str | None = None
    entry: bytes = b""
    scores: tuple[tuple[Status, float | None], ...] = ()
    error: str = ""


async def outcome(gym: AsyncReasoningGym, recipe: Recipe) -> Outcome:
    try:
        problem = await gym.problem(recipe)
    except (
        GenerationError
    ) as error:  # the library has no answer to a few of its own problems
        return Outcome(error=str(error))
    answers = (problem.oracle or "?", "0", "no such answer", "[1, 2]")
    scores = await gym.score_many(
        (problem, f"<answer>{answer}</answer>") for answer in answers
    )
    return Outcome(
        question=problem.question,
        oracle=problem.oracle,
        entry=problem.entry,
        scores=tuple((score.status, score.score) for score in scores),
    )


async def outcomes(name: str) -> dict[str, Outcome]:
    """Make and score everything in fresh processes, and print how long it took."""
    begin = time.monotonic()
    async with AsyncReasoningGym(processes=2, generation_timeout=60.0) as gym:
        tasks = [task.name for task in await gym.tasks()]
        recipes = [Recipe(task=task, seed=seed) for task in tasks for seed in SEEDS]
        recipes += SLOW_RECIPES
        results = await asyncio.gather(*(outcome(gym, recipe) for recipe in recipes))
    verdicts = [status for result in results for status, _ in result.scores]
    counts = {str(status.value): number for status, number in Counter(verdicts).items()}
    print(  # noqa: T201 - what the run is for
        f"{name}: {len(tasks)} tasks, {len(results)} items, {len(verdicts)} verdicts in "
        f"{time.monotonic() - begin:.0f} s: {counts}"
    )
    return dict(zip(map(str, recipes), results, strict=True))


async def test_twelve_busy_processes_change_no_item_no_verdict_and_no_reward(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with capsys.disabled():
        idle = await outcomes("\nidle")
        with busy_processes(BUSY_PROCESSES):
            busy = await outcomes(f"{BUSY_PROCESSES} busy processes")
        differing = [recipe for recipe in idle if idle[recipe] != busy[recipe]]
        print(f"{len(differing)} of {len(idle)} items differ")  # noqa: T201 - as above
    for recipe in differing:
        assert busy[recipe] == idle[recipe]
    assert len(idle) > 105
