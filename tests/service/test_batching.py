"""Batches, limits of the queue and of bodies, disconnects and retries."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import aiohttp
import pytest
from fastapi import HTTPException
from hung_gym import Hung
from prometheus_client import CollectorRegistry
from reward_requests import Post, right
from worker_stock import WorkerStock

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.records import Problem, Recipe, Score, Status
from reasoning_gym_environment.service._batching import ScoringQueue
from reasoning_gym_environment.service._limits import retry
from reasoning_gym_environment.service._messages import Target
from reasoning_gym_environment.service._scheduling import MAX_BATCH, SMALL_BATCH
from reasoning_gym_environment.service.app import RewardService, ServiceSettings

pytestmark = pytest.mark.asyncio(loop_scope="session")


ScoreBatch = Callable[[Target, Sequence[str]], Awaitable[list[Score]]]


def target(seed: int) -> Target:
    return Target(recipe=Recipe(task="gcd", seed=seed))


class Slow:
    """Scores each completion as wrong, with itself as the answer, once `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.groups: list[list[str]] = []

    async def score(self, _: Target, completions: Sequence[str]) -> list[Score]:
        self.groups.append(list(completions))
        await self.go.wait()
        return [Score(score=0.0, status=Status.WRONG, answer=text) for text in completions]


def queue_of(score: ScoreBatch, *, most: int = 1000, concurrency: int = 2) -> ScoringQueue:
    registry = CollectorRegistry()
    return ScoringQueue(score, registry, most=most, concurrency=concurrency, longest_wait=0.2)


async def test_requests_for_one_recipe_are_scored_together(
    post: Post, service: RewardService, problem: Problem
) -> None:
    recipe = problem.recipe.to_json()
    registry = service.app.state.registry
    names = ("reasoning_gym_batches_total", "reasoning_gym_batched_answers_total")
    before = [registry.get_sample_value(name) for name in names]
    texts = [right(problem), *(f"<answer>{-n}</answer>" for n in range(1, 8))]
    asked = [post("/score", {"recipe": recipe, "completions": [text]}) for text in texts]
    replies = await asyncio.gather(*asked)
    assert [r.body["scores"][0]["status"] for r in replies] == ["solved"] + ["wrong"] * 7
    batches, batched = (
        registry.get_sample_value(name) - value for name, value in zip(names, before, strict=True)
    )
    assert batched == 8
    assert batches < 8


async def test_completions_of_one_problem_are_batched_and_keep_their_order() -> None:
    slow = Slow()
    slow.go.set()
    queue = queue_of(slow.score, most=1000, concurrency=1)
    asked = [queue.score(target(n % 2), [f"{n}"], client="a") for n in range(6)]
    answers = [[s.answer for s in scores] for scores in await asyncio.gather(*asked)]
    assert answers == [[f"{n}"] for n in range(6)]
    assert slow.groups == [["0", "2", "4"], ["1", "3", "5"]]
    assert queue.pending == 0


async def test_batches_are_bounded() -> None:
    slow = Slow()
    slow.go.set()
    queue = queue_of(slow.score, most=1000, concurrency=1)
    for sizes in ([SMALL_BATCH] * 10, [MAX_BATCH, MAX_BATCH, 8]):
        scores = await queue.score(target(0), [f"{n}" for n in range(40)], client="a")
        assert [s.answer for s in scores] == [f"{n}" for n in range(40)]
        assert [len(group) for group in slow.groups] == sizes
        slow.groups.clear()


async def test_a_full_queue_rejects_and_recovers() -> None:
    slow = Slow()
    queue = queue_of(slow.score, most=3, concurrency=1)
    waiting = asyncio.create_task(queue.score(target(0), ["a", "b"], client="a"))
    await asyncio.sleep(0)
    with pytest.raises(
        HTTPException, match="2 of 3 completions are pending: try again later"
    ) as refused:
        await queue.score(target(1), ["c", "d"], client="a")
    assert (refused.value.status_code, refused.value.headers["Retry-After"]) == (429, "1")
    slow.go.set()
    await waiting
    assert len(await queue.score(target(1), ["c", "d"], client="a")) == 2


async def test_completions_of_a_cancelled_caller_are_not_scored() -> None:
    slow = Slow()
    queue = queue_of(slow.score, most=1000, concurrency=1)
    first = asyncio.create_task(queue.score(target(0), ["first"], client="a"))
    while not slow.groups:
        await asyncio.sleep(0.001)
    stays = asyncio.create_task(queue.score(target(1), ["stays"], client="a"))
    leaves = [asyncio.create_task(queue.score(target(n), ["leaves"], client="a")) for n in (1, 2)]
    await asyncio.sleep(0.02)
    for each in leaves:
        each.cancel()
    await asyncio.gather(*leaves, return_exceptions=True)
    assert queue.pending == 2
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    assert names.count("ScoringQueue._run") == 2, "a batch that all callers left is removed"
    slow.go.set()
    await asyncio.gather(first, stays)
    await asyncio.sleep(0.02)
    assert slow.groups == [["first"], ["stays"]]


async def test_an_error_reaches_only_the_callers_of_its_batch() -> None:
    async def refuse(which: Target, completions: Sequence[str]) -> list[Score]:
        if which == target(1):
            raise HTTPException(422, "no")
        return [Score(score=1.0, status=Status.SOLVED)] * len(completions)

    queue = queue_of(refuse, most=1000, concurrency=2)
    asked = [queue.score(target(n), ["x"], client="a") for n in (0, 1, 1)]
    good, *bad = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(good, list)
    assert [str(error) for error in bad] == ["422: no", "422: no"]


@asynccontextmanager
async def started(gym: AsyncReasoningGym, **settings: object) -> AsyncIterator[RewardService]:
    async with RewardService(gym, ServiceSettings(port=0, **settings)) as service:  # type: ignore[arg-type]  # settings of several types
        yield service


RECIPE = {"task": "gcd", "seed": 12}


async def test_a_full_service_replies_429_with_retry_after(
    gym: AsyncReasoningGym, post: Post
) -> None:
    async with started(gym, queue=8) as service:
        body = {"recipe": RECIPE, "completions": ["4"] * 9}
        reply = await post("/score", body, url=service.url)
    assert (reply.status, reply.headers["Retry-After"]) == (429, "1")
    assert reply.body == {"error": "0 of 8 completions are pending: try again later"}


TOKEN = "a-token-of-24-characters"


async def test_all_routes_but_health_require_the_token(
    gym: AsyncReasoningGym, post: Post, session: aiohttp.ClientSession, problem: Problem
) -> None:
    body = {"recipe": problem.recipe.to_json(), "completions": [right(problem)]}
    async with started(gym, token=TOKEN) as service:
        for bad in (None, {"Authorization": TOKEN}, {"Authorization": "Bearer é"}):
            reply = await post("/score", body, url=service.url, headers=bad)
            assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "Authorization: Bearer TOKEN is missing" in reply.body["error"]
        good = {"Authorization": f"Bearer {TOKEN}"}
        assert (await post("/score", body, url=service.url, headers=good)).status == 200
        for route, status in (("health", 200), ("metrics", 401), ("openapi.json", 401)):
            async with session.get(f"{service.url}/{route}") as response:
                assert response.status == status


async def test_a_stalled_body_gets_408(gym: AsyncReasoningGym) -> None:
    async with started(gym, body_timeout=0.1) as service:
        port = int(service.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 9\r\n\r\n{"
        )
        reply = await reader.readuntil(b"}")
        writer.close()
        await writer.wait_closed()
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert reply.endswith(b'{"error": "the body did not arrive within 0.1 s"}')


async def test_a_disconnect_is_counted_and_leaves_other_requests_alone(
    service: RewardService, post: Post, session: aiohttp.ClientSession, problem: Problem
) -> None:
    body = {"recipe": problem.recipe.to_json(), "completions": [right(problem)] * 64}
    registry = service.app.state.registry

    def left() -> float:
        labels = {"route": "/score", "code": "499"}
        return registry.get_sample_value("reasoning_gym_requests_total", labels) or 0

    before = left()
    with contextlib.suppress(asyncio.TimeoutError):
        async with session.post(
            f"{service.url}/score", json=body, timeout=aiohttp.ClientTimeout(total=0.01)
        ):
            pass
    reply = await post("/score", {**body, "completions": [right(problem)]})
    assert reply.body["scores"][0]["status"] == "solved"
    assert left() == before + 1


async def test_completions_that_wait_too_long_get_503() -> None:
    slow = Slow()
    queue = queue_of(slow.score, concurrency=1)
    first = asyncio.create_task(queue.score(target(0), ["a"], client="a"))
    while not slow.groups:
        await asyncio.sleep(0.001)
    with pytest.raises(HTTPException, match=r"waited 0\.2 s for a free verifier") as refused:
        await queue.score(target(1), ["b"], client="a")
    assert (refused.value.status_code, refused.value.headers["Retry-After"]) == (503, "10")
    slow.go.set()
    await first
    assert slow.groups == [["a"]]
    assert len(await queue.score(target(1), ["b"], client="a")) == 1


async def test_batches_of_one_client_hold_no_completions_of_another() -> None:
    slow = Slow()
    slow.go.set()
    queue = queue_of(slow.score)
    await asyncio.gather(*(queue.score(target(0), ["4"], client=name) for name in ("a", "b", "a")))
    assert slow.groups == [["4", "4"], ["4"]]


async def test_answers_that_hang_leave_half_of_the_verifiers_to_others(
    stock: WorkerStock, post: Post, problem: Problem
) -> None:
    recipe = {"task": "rush_hour", "seed": 4}
    hanging = {
        "recipe": recipe,
        "completions": [f"<answer>A+9999999999{n}</answer>" for n in range(200)],
    }
    body = {"recipe": problem.recipe.to_json(), "completions": [right(problem)]}
    async with (
        AsyncReasoningGym(processes=2, verify_timeout=0.5, start_worker=stock.lend) as gym,
        started(gym, drain=0) as service,
    ):
        waiting = asyncio.create_task(post("/score", hanging, url=service.url))
        await asyncio.sleep(0.5)
        for _ in range(20):
            reply = await asyncio.wait_for(post("/score", body, url=service.url), 2)
            assert reply.body["scores"][0]["score"] == 1.0
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_requests_that_outlast_draining_get_503(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    gym = Hung()
    async with started(gym, drain=0) as service:
        body = {"recipe": RECIPE, "completions": ["4"]}
        asked = asyncio.create_task(post("/score", body, url=service.url))
        await gym.asked.wait()
    reply = await asked
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert reply.body == {"error": "this service is shutting down: ask another one"}
    assert "Traceback" not in caplog.text


async def test_openrlhf_and_slime_wait_for_room_in_the_queue(
    gym: AsyncReasoningGym, post: Post, problem: Problem
) -> None:
    label = problem.recipe.to_json()
    sample = {"response": right(problem), "label": label}
    batch = {"query": [right(problem)] * 3, "prompts": [""] * 3, "labels": [label] * 3}
    async with started(gym, queue=1, pauses=(0.1,) * 30) as service:
        asked = [("/openrlhf", batch), ("/slime", sample), ("/slime", sample)]
        replies = await asyncio.gather(*(post(*each, url=service.url) for each in asked))
    assert [reply.body for reply in replies] == [{"rewards": [1.0] * 3}, 1.0, 1.0]


class Fails:
    """Fails so many times, then returns its number of attempts."""

    def __init__(self, status: int, times: int) -> None:
        self.status = status
        self.times = times
        self.tries = 0

    async def attempt(self) -> int:
        self.tries += 1
        if self.tries <= self.times:
            raise HTTPException(self.status, "no")
        return self.tries


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_repeats_after_each_delay(status: int) -> None:
    assert await retry(Fails(status, 3).attempt, (0.0, 0.0, 0.0)) == 4
    fails = Fails(status, 4)
    with pytest.raises(HTTPException, match="no"):
        await retry(fails.attempt, (0.0, 0.0, 0.0))
    assert fails.tries == 4


async def test_retry_raises_permanent_errors_at_once() -> None:
    fails = Fails(422, 1)
    with pytest.raises(HTTPException, match="no"):
        await retry(fails.attempt, (60.0,))
    assert fails.tries == 1
