"""The stream returns problems in draw order, and continues exactly from its state."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from reasoning_gym_environment.errors import GenerationError, PoolClosedError
from reasoning_gym_environment.problems.sampler import Sampler
from reasoning_gym_environment.problems.stream import (
    MAX_FAILED,
    MAX_SKIPPED,
    RecipeStream,
    Skip,
    first_usable,
)
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool

pytestmark = pytest.mark.asyncio(loop_scope="session")

WEIGHTS = {"gcd": 1.0, "chain_sum": 1.0, "coin_flip": 2.0, "sudoku": 1.0}
MakeStream = Callable[..., RecipeStream]


def sampler(weights: dict[str, float] = WEIGHTS, run_seed: int = 7) -> Sampler:
    return Sampler(weights, run_seed=run_seed, replica="env_0")


def by_seed(recipes: list[Recipe]) -> list[Recipe]:
    """Order recipes by their seeds, which are distinct."""
    return sorted(recipes, key=lambda recipe: recipe.seed)


def drawn(count: int, weights: dict[str, float] = WEIGHTS) -> list[Recipe]:
    fresh = sampler(weights)
    return [fresh.next_recipe() for _ in range(count)]


@pytest_asyncio.fixture(loop_scope="session")
async def make_stream(pool: TaskPool) -> AsyncIterator[MakeStream]:
    streams = []

    def make(
        source: Sampler | None = None,
        *,
        prefetch: int = 4,
    ) -> RecipeStream:
        stream = RecipeStream(source or sampler(), pool.generate, prefetch=prefetch)
        streams.append(stream)
        return stream

    yield make
    for stream in streams:
        stream.cancel()


@asynccontextmanager
async def closed_pool() -> AsyncIterator[TaskPool]:
    pool = TaskPool(PoolSettings(processes=1), Counter())
    await pool.close()
    yield pool


async def take(stream: RecipeStream, count: int) -> list[Recipe]:
    return [(await stream.next_problem()).recipe for _ in range(count)]


@pytest.mark.parametrize("prefetch", [1, 5, 16])
async def test_problems_are_returned_in_draw_order(
    make_stream: MakeStream, prefetch: int
) -> None:
    assert await take(make_stream(prefetch=prefetch), 12) == drawn(12)


async def test_concurrent_callers_share_the_problems_without_loss_or_repetition(
    make_stream: MakeStream,
) -> None:
    stream = make_stream()
    problems = await asyncio.gather(*(stream.next_problem() for _ in range(20)))
    assert by_seed([problem.recipe for problem in problems]) == by_seed(drawn(20))


@pytest.mark.parametrize("taken", [0, 1, 3, 10])
@pytest.mark.parametrize("prefetch", [1, 6])
async def test_a_stream_resumed_from_json_continues_exactly(
    make_stream: MakeStream, taken: int, prefetch: int
) -> None:
    stream = make_stream(prefetch=prefetch)
    before = await take(stream, taken)
    state = json.loads(json.dumps(stream.state_dict()))
    assert len(state["ahead"]) == (prefetch if taken else 0)
    resumed = make_stream(sampler(run_seed=99), prefetch=prefetch + 2)
    await take(resumed, 3)
    resumed.load_state_dict(state)
    assert before + await take(resumed, 12) == drawn(taken + 12)


async def test_a_stream_can_be_stopped_and_resumed_again_and_again(
    make_stream: MakeStream,
) -> None:
    stream, taken = make_stream(), []
    for _ in range(5):
        taken += await take(stream, 2)
        state = json.loads(json.dumps(stream.state_dict()))
        stream = make_stream(prefetch=3)
        stream.load_state_dict(state)
        assert json.loads(json.dumps(stream.state_dict())) == state
    assert taken == drawn(10)


async def test_a_resumed_stream_makes_only_the_prefetched_problems_at_once(
    make_stream: MakeStream,
) -> None:
    stream = make_stream(prefetch=50)
    before = await take(stream, 1)
    resumed = make_stream(prefetch=2)
    tasks = len(asyncio.all_tasks())
    resumed.load_state_dict(stream.state_dict())
    assert len(asyncio.all_tasks()) <= tasks + 2
    taken = await take(resumed, 3)
    state = json.loads(json.dumps(resumed.state_dict()))
    assert [Recipe.from_json(recipe) for recipe in state["ahead"]] == drawn(51)[4:]
    assert before + taken + await take(resumed, 60) == drawn(64)


async def test_a_state_taken_while_a_caller_waits_still_holds_its_problem(
    make_stream: MakeStream,
) -> None:
    stream = make_stream(prefetch=2)
    waiting = asyncio.create_task(stream.next_problem())
    await asyncio.sleep(0)
    state = stream.state_dict()
    first = (await waiting).recipe
    resumed = make_stream()
    resumed.load_state_dict(state)
    assert [first] == drawn(1) == await take(resumed, 1)


async def test_an_item_that_cannot_be_made_is_counted_and_skipped(
    make_stream: MakeStream, pool_counts: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    weights = {"gcd": 1.0, "no_such_task": 1.0}
    before = pool_counts["generation/errors"]
    recipes = await take(make_stream(sampler(weights), prefetch=1), 8)
    every = drawn(40, weights)
    assert recipes == [recipe for recipe in every if recipe.task == "gcd"][:8]
    skipped = every.index(recipes[-1]) + 1 - 8
    assert skipped > 0
    assert pool_counts["generation/errors"] >= before + skipped
    assert "Skipping an item that can't be generated: no_such_task" in caplog.text


async def test_cancelled_callers_lose_no_problem(make_stream: MakeStream) -> None:
    stream = make_stream(prefetch=3)
    for _ in range(3):
        waiting = asyncio.create_task(stream.next_problem())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await take(stream, 8) == drawn(8)


async def test_a_cancelled_caller_does_not_affect_other_callers(
    make_stream: MakeStream,
) -> None:
    stream = make_stream(prefetch=2)
    callers = [asyncio.create_task(stream.next_problem()) for _ in range(9)]
    await asyncio.sleep(0)
    for caller in callers[::3]:
        caller.cancel()
    ended = await asyncio.gather(*callers, return_exceptions=True)
    got = [
        problem.recipe for problem in ended if not isinstance(problem, BaseException)
    ]
    got += await take(stream, 4)
    assert by_seed(got) == by_seed(drawn(len(got)))


async def test_a_stream_gives_up_if_no_item_can_be_made(
    make_stream: MakeStream,
) -> None:
    stream = make_stream(sampler({"no_such_task": 1.0}), prefetch=32)
    with pytest.raises(
        GenerationError, match=f"first {MAX_FAILED} items .* unknown task 'no_"
    ):
        await stream.next_problem()


async def test_a_stream_raises_if_the_pool_is_closed() -> None:
    async with closed_pool() as pool:
        stream = RecipeStream(sampler(), pool.generate, prefetch=2)
        with pytest.raises(PoolClosedError):
            await stream.next_problem()
        stream.cancel()


async def test_draws_without_a_problem_end_but_begin_again_below_a_capped_level() -> (
    None
):
    problem = Problem(
        recipe=Recipe(task="gcd", seed=0), question="?", oracle="1", entry=b""
    )

    async def first_of(draws: Iterable[Problem | Skip]) -> Problem | None:
        drawn = iter(draws)

        async def draw() -> Problem | Skip:
            return next(drawn)

        return await first_usable(draw)

    unusable = [Skip.UNUSABLE] * (MAX_SKIPPED - 1)
    assert await first_of([*unusable, problem]) == problem
    assert await first_of([*unusable, Skip.UNUSABLE, problem]) is None
    begun_again = [*unusable, Skip.LEVEL_CAPPED, *unusable, problem]
    assert await first_of(begun_again) == problem
