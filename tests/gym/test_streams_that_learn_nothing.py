"""A stream that would learn nothing raises, warns or counts."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from worker_stock import WorkerStock

from reasoning_gym_environment import AsyncReasoningGym, Problem
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.gym.streams import AsyncProblemStream
from reasoning_gym_environment.problems.gathering import MISMATCHES

CURRICULUM: dict[str, Any] = {"tasks": ["gcd"], "complexity_mode": "curriculum"}


@pytest.fixture(scope="module")
async def gym(stock: WorkerStock) -> AsyncIterator[AsyncReasoningGym]:
    async with AsyncReasoningGym(processes=1, start_worker=stock.lend) as gym:
        yield gym


@pytest.fixture(scope="module")
async def other_gym(stock: WorkerStock) -> AsyncIterator[AsyncReasoningGym]:
    async with AsyncReasoningGym(processes=1, start_worker=stock.lend) as gym:
        yield gym


def wrong(problem: Problem, count: int) -> Sequence[tuple[Problem, str]]:
    return [(problem, "<answer>0</answer>")] * count


def level_of(stream: AsyncProblemStream) -> float:
    return stream.levels()["gcd"].level


async def test_a_score_without_group_size_is_refused(
    gym: AsyncReasoningGym, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await gym.stream(**CURRICULUM)
    problem = await stream.next()
    with pytest.raises(ConfigurationError, match=r"group_size .* got None.*observe"):
        await gym.score_many(wrong(problem, 4))
    with pytest.raises(ConfigurationError, match="group_size"):
        await gym.score(problem.recipe, "4")
    # Another's problem, what is observed already, and a stream that learns nothing.
    [other] = await gym.problems("gcd")
    await gym.score(other, "4")
    stream.observe(problem, solved=0, attempts=4)
    await gym.score(problem, "4")
    plain = await gym.stream(["gcd"])
    await gym.score(await plain.next(), "4")
    assert caplog.messages == []
    stream.close()
    plain.close()


async def test_a_stream_takes_the_group_size_of_a_trainer_and_no_other(
    gym: AsyncReasoningGym,
) -> None:
    stream = await gym.stream(**CURRICULUM)
    before = level_of(stream)
    for _ in range(40):
        problem = await stream.next()
        for _ in range(2):
            await gym.score_many(wrong(problem, 2), group_size=4)
    assert level_of(stream) < before
    assert stream.levels()["gcd"].expected_signal is not None
    with pytest.raises(ConfigurationError, match=r"is 4, but .* 8 completions"):
        await gym.score_many(wrong(await stream.next(), 8), group_size=8)
    stream.close()


async def test_scores_of_another_gym_are_said_once(
    gym: AsyncReasoningGym,
    other_gym: AsyncReasoningGym,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = await gym.stream(**CURRICULUM, group_size=4)
    for _ in range(2 * MISMATCHES):
        await other_gym.score_many(wrong(await stream.next(), 4))
    [message] = caplog.messages
    assert f"Another gym scored {MISMATCHES} problems" in message
    assert "observe" in message
    stream.close()


async def test_another_gym_may_score_what_is_observed(
    gym: AsyncReasoningGym,
    other_gym: AsyncReasoningGym,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = await gym.stream(**CURRICULUM)
    for _ in range(2):
        batch = [await stream.next() for _ in range(2 * MISMATCHES)]
        for problem in batch:
            await other_gym.score(problem, "4")
        for problem in batch:
            stream.observe(problem, solved=0, attempts=1)
    assert caplog.messages == []
    stream.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"task": "lcm", "level": None, "parameters": {}}, "problem is of lcm"),
        ({"level": None}, "no level"),
        ({"level": 99}, "level 99"),
        ({"parameters": {"max_value": 9}}, "'max_value': 9"),
        ({"seed": 3}, "seed 3 of an evaluation"),
    ],
)
async def test_a_result_that_the_stream_could_not_bring_is_refused(
    gym: AsyncReasoningGym, change: dict[str, Any], says: str
) -> None:
    stream = await gym.stream(**CURRICULUM)
    before = level_of(stream)
    recipe = {**(await stream.next()).recipe.to_json(), **change}
    with pytest.raises(ConfigurationError, match=f"{says}.* draws"):
        stream.observe(recipe, solved=8, attempts=8)
    assert level_of(stream) == before
    assert stream.sampling()["sampling/unawaited_results"] == 0
    stream.close()


async def test_a_fixed_difficulty_draws_the_two_levels_beside_it(
    gym: AsyncReasoningGym,
) -> None:
    options: dict[str, Any] = {"complexity_mode": "fixed", "difficulty": 0.5}
    stream = await gym.stream(["chain_sum"], **options)
    [task] = [task for task in await gym.tasks() if task.name == "chain_sum"]
    drawn = {(await stream.next()).recipe.level for _ in range(20)}
    refused = set[int]()
    for level in range(task.levels):
        [problem] = await gym.problems("chain_sum", level=level)
        try:
            stream.observe(problem, solved=1, attempts=1)
        except ConfigurationError:
            refused.add(level)
    assert refused == {*range(task.levels)} - drawn
    stream.close()


async def test_a_result_that_nothing_awaits_is_counted_and_teaches_nothing(
    gym: AsyncReasoningGym,
) -> None:
    stream = await gym.stream(**CURRICULUM)
    problem = await stream.next()
    stream.observe(problem, solved=8, attempts=8)
    after_first = stream.levels()
    for _ in range(20):
        stream.observe(problem, solved=8, attempts=8)
    assert stream.levels() == after_first
    assert stream.sampling()["sampling/unawaited_results"] == 20
    stream.close()
