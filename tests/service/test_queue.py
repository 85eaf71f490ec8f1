"""Batches, turns of clients, limits of the queue, tokens, disconnects and retries."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import encode_basic_auth
from fastapi import HTTPException
from hung_gym import Hung
from prometheus_client import CollectorRegistry
from reward_requests import Post, right
from starlette.types import Message, Receive, Scope, Send
from worker_stock import WorkerStock

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.records import Problem, Score, Status
from reasoning_gym_environment.service import endpoints
from reasoning_gym_environment.service._limits import BearerToken
from reasoning_gym_environment.service._queue import MAX_BATCH, ScoringQueue
from reasoning_gym_environment.service.app import RewardService, ServiceSettings
from reasoning_gym_environment.util.retries import RetryPolicy

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Queue:
    """A queue of texts, whose batches end when their first text is told to."""

    def __init__(self, **settings: Any) -> None:
        known = {
            "most": 1000,
            "slots": 4,
            "gathering": 0,
            "longest_wait": 60.0,
            **settings,
        }
        self.queue = ScoringQueue(CollectorRegistry(), **known)
        self.started: list[str] = []
        self._ends: dict[str, asyncio.Future[Status]] = {}

    async def _score(self, texts: Sequence[str]) -> list[Score]:
        self.started.append(" ".join(texts))
        status = await self._ends.setdefault(texts[0], asyncio.Future())
        return [Score(score=0.0, status=status, answer=text) for text in texts]

    async def ask(
        self, client: str, texts: str, *, key: int = 0
    ) -> asyncio.Task[list[Score]]:
        """Ask for the scores of some texts; return once they are scored, or stand in line."""
        score = self.queue.score(self._score, texts.split(), key=key, client=client)
        asked = asyncio.create_task(score)
        # Left waiting, it fails a minute after its test: not for another test's log.
        asked.add_done_callback(lambda task: task.cancelled() or task.exception())
        await self.settle()
        return asked

    async def end(self, *texts: str, status: Status = Status.WRONG) -> None:
        for text in texts:
            self._ends.setdefault(text, asyncio.Future()).set_result(status)
            await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_completions_with_one_key_are_batched_and_keep_their_order() -> None:
    queue = Queue(slots=1)
    await queue.end("0", "1")
    asked = [
        queue.queue.score(queue._score, [f"{n}"], key=n % 2, client="a")
        for n in range(6)
    ]
    answers = [
        [score.answer for score in scores] for scores in await asyncio.gather(*asked)
    ]
    assert answers == [[f"{n}"] for n in range(6)]
    assert queue.started == ["0 2 4", "1 3 5"]


async def test_batches_are_bounded_and_hold_completions_of_one_client() -> None:
    queue = Queue(slots=8)
    texts = " ".join(map(str, range(20)))
    await queue.ask("a", texts)
    await queue.ask("b", "b")
    assert [len(each.split()) for each in queue.started] == [MAX_BATCH // 2] * 5 + [1]
    await queue.end("0")
    await queue.ask("a", texts, key=1)
    assert [len(each.split()) for each in queue.started[6:]] == [
        MAX_BATCH,
        MAX_BATCH,
        4,
    ]
    await queue.ask("c", "same " * 50)
    assert [len(each.split()) for each in queue.started[9:]] == [50], (
        "it is verified once"
    )


async def test_a_full_queue_rejects_and_recovers() -> None:
    queue = Queue(most=6)
    for client in "ab":
        await queue.ask(client, f"{client}1 {client}2 {client}3")
    for client, texts, says in (
        ("c", "c", "6 of 6 completions are pending: try again later"),
        ("a", "a4", "6 of 6 completions"),
    ):
        with pytest.raises(HTTPException, match=says) as refused:
            await (await queue.ask(client, texts))
        assert (refused.value.status_code, refused.value.headers) == (
            429,
            {"Retry-After": "1"},
        )
    await queue.end("b1")
    with pytest.raises(
        HTTPException, match="3 completions of this client are pending, of 3"
    ):
        await (await queue.ask("a", "a4"))
    await queue.end("a1", "a4")
    assert len(await (await queue.ask("a", "a4"))) == 1


async def test_clients_take_turns() -> None:
    queue = Queue(slots=1)
    for key, texts in enumerate(("a1", "a2", "a3")):
        await queue.ask("a", texts, key=key)
    await queue.ask("b", "b1")
    await queue.end("a1", "a2", "b1")
    assert queue.started == ["a1", "a2", "b1", "a3"]


HANGING = [f"h{n}" for n in range(9)]


@pytest.mark.parametrize("status", [Status.TIMEOUT, Status.CRASHED, Status.UNSCORED])
async def test_a_client_whose_answers_hang_has_a_quarter_of_the_slots_while_others_ask(
    status: Status,
) -> None:
    queue = Queue(slots=8)
    for key, text in enumerate(HANGING):
        await queue.ask("hangs", text, key=key)
    assert queue.started == HANGING[:8], "it is alone"
    await queue.ask("other", "o")
    await queue.end("h0", status=status)
    await queue.end("o")
    assert queue.started[8:] == ["o"]
    await queue.end(*HANGING[1:6], status=status)
    assert queue.started[9:] == [], "two of its batches still run"
    for key in range(7):
        await queue.ask("other", f"p{key}", key=key)
    assert queue.started[9:] == [f"p{n}" for n in range(6)], "it is known to be quick"
    await queue.end("h6", status=status)
    assert queue.started[15:] == ["h8"]


async def test_a_new_client_has_a_quarter_of_the_slots_until_a_quick_batch() -> None:
    queue = Queue(slots=4)
    await queue.ask("other", "o")
    for key in range(3):
        await queue.ask("new", f"n{key}", key=key)
    assert queue.started == ["o", "n0"]
    await queue.end("n0")
    assert queue.started[2:] == ["n1", "n2"]


async def test_a_client_whose_answers_hang_has_all_slots_while_it_is_alone() -> None:
    queue = Queue(slots=4)
    await queue.ask("hangs", "h")
    await queue.end("h", status=Status.TIMEOUT)
    for key in range(4):
        await queue.ask("hangs", f"g{key}", key=key)
    assert queue.started[1:] == ["g0", "g1", "g2", "g3"]


async def test_a_function_that_hangs_takes_no_slot_of_others() -> None:
    queue = Queue(slots=2, own_workers=["f", "g"])
    for key in range(3):
        await queue.ask("f", f"f{key}", key=key)
    for key in range(3):
        await queue.ask("client", f"c{key}", key=key)
    await queue.ask("g", "g0")
    assert queue.started == ["f0", "f1", "c0", "c1", "g0"]
    await queue.end("c0", "f0")
    assert queue.started[5:] == ["c2", "f2"]


async def test_completions_of_a_cancelled_caller_are_not_scored() -> None:
    queue = Queue(slots=1)
    await queue.ask("a", "first")
    await queue.ask("a", "stays", key=1)
    leaves = [await queue.ask("a", f"leaves{key}", key=key) for key in (1, 2)]
    for each in leaves:
        each.cancel()
    await queue.settle()
    await queue.end("first", "stays")
    assert queue.started == ["first", "stays"]


async def test_an_error_reaches_only_the_callers_of_its_batch() -> None:
    queue = Queue(slots=1)

    async def refuse(texts: Sequence[str]) -> list[Score]:
        raise HTTPException(422, "no")

    await queue.end("x")
    good, *bad = await asyncio.gather(
        queue.queue.score(queue._score, ["x"], key=0, client="a"),
        *(queue.queue.score(refuse, ["y"], key=1, client="a") for _ in range(2)),
        return_exceptions=True,
    )
    assert isinstance(good, list)
    assert [str(error) for error in bad] == ["422: no", "422: no"]


async def test_completions_that_wait_too_long_get_503() -> None:
    queue = Queue(slots=1, longest_wait=0.1)
    await queue.ask("a", "a")
    with pytest.raises(
        HTTPException, match=r"waited 0\.1 s for a free verifier"
    ) as refused:
        await (await queue.ask("b", "b"))
    assert (refused.value.status_code, refused.value.headers) == (
        503,
        {"Retry-After": "10"},
    )
    await queue.end("a", "c")
    assert len(await (await queue.ask("b", "c"))) == 1
    assert queue.started == ["a", "c"]


async def test_a_batch_that_waits_too_long_may_have_lost_a_caller() -> None:
    queue = Queue(slots=1, longest_wait=0.1)
    await queue.ask("a", "a")
    goes, stays = await queue.ask("b", "b"), await queue.ask("b", "c")
    goes.cancel()
    time.sleep(
        0.2
    )  # the loop finds that the batch waited too long before its caller has gone
    with pytest.raises(HTTPException, match=r"waited 0\.1 s for a free verifier"):
        await asyncio.wait_for(stays, 10)


async def test_requests_for_one_recipe_are_scored_together(
    post: Post, service: RewardService, problem: Problem
) -> None:
    recipe = problem.recipe.to_json()
    registry = service.app.state.registry
    names = ("reasoning_gym_batches_total", "reasoning_gym_batched_answers_total")
    before = [registry.get_sample_value(name) for name in names]
    texts = [right(problem), *(f"<answer>{-n}</answer>" for n in range(1, 8))]
    asked = [
        post("/score", {"recipe": recipe, "completions": [text]}) for text in texts
    ]
    replies = await asyncio.gather(*asked)
    assert [r.body["scores"][0]["status"] for r in replies] == ["solved"] + [
        "wrong"
    ] * 7
    batches, batched = (
        registry.get_sample_value(name) - value
        for name, value in zip(names, before, strict=True)
    )
    assert batched == 8
    assert batches < 8


@asynccontextmanager
async def started(
    gym: AsyncReasoningGym, **settings: Any
) -> AsyncIterator[RewardService]:
    async with RewardService(gym, ServiceSettings(port=0, **settings)) as service:
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


TOKENS = "a-token-of-24-characters\nanother of 20 letters"


async def test_all_routes_but_health_require_a_token(
    gym: AsyncReasoningGym, post: Post, session: aiohttp.ClientSession, problem: Problem
) -> None:
    body = {"recipe": problem.recipe.to_json(), "completions": [right(problem)]}
    one, other = TOKENS.splitlines()
    async with started(gym, token=TOKENS) as service:
        basic = [
            encode_basic_auth(*pair)
            for pair in ((one, ""), ("", f"{one}:{one}"), ("", ""))
        ]
        malformed = (
            one,
            "Bearer ",
            "Bearer é",
            "Basic é",
            "Basic x",
            f"Basic {one}",
            *basic,
        )
        for bad in (None, f"Bearer {one} {other}", f"Bearer {other[:-1]}", *malformed):
            headers = bad and {"Authorization": bad}
            reply = await post("/score", body, url=service.url, headers=headers)
            challenges = reply.headers.getall("WWW-Authenticate")
            assert (reply.status, challenges) == (
                401,
                ["Bearer", 'Basic realm="token"'],
            )
            assert "Authorization: Bearer TOKEN is missing" in reply.body["error"]
        for good in (f"Bearer {one}", f"Bearer {other}", encode_basic_auth("any", one)):
            headers = {"Authorization": good}
            assert (
                await post("/score", body, url=service.url, headers=headers)
            ).status == 200
        for route, status in (("health", 200), ("metrics", 401), ("openapi.json", 401)):
            async with session.get(f"{service.url}/{route}") as response:
                assert response.status == status


async def test_a_websocket_requires_a_token() -> None:
    passed, sent = [], []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope["token"])

    async def send(message: Message) -> None:
        sent.append(message)

    one, _ = TOKENS.splitlines()
    gate = BearerToken(app, tokens=[one])
    for header in (b"", b"Bearer wrong", encode_basic_auth("token", one).encode()):
        scope = {
            "type": "websocket",
            "path": "/ws",
            "headers": [(b"authorization", header)],
        }
        await gate(scope, asyncio.Queue[Message]().get, send)
    assert passed == [one]
    assert [m["status"] for m in sent if "status" in m] == [401, 401]


async def test_each_token_has_its_half_of_the_queue(post: Post) -> None:
    gym = Hung()
    async with started(gym, token=TOKENS, queue=4, drain=0) as service:
        ones, others = (
            {"Authorization": f"Bearer {token}"} for token in TOKENS.splitlines()
        )
        body = {"recipe": RECIPE, "completions": ["4"] * 2}
        first = asyncio.create_task(post("/score", body, url=service.url, headers=ones))
        await gym.asked.wait()
        refused = await post("/score", body, url=service.url, headers=ones)
        assert refused.status == 429
        assert "2 completions of this client" in refused.body["error"]
        as_basic = {"Authorization": encode_basic_auth("x", TOKENS.splitlines()[0])}
        assert (
            await post("/score", body, url=service.url, headers=as_basic)
        ).status == 429
        second = asyncio.create_task(
            post("/score", body, url=service.url, headers=others)
        )
        done, _ = await asyncio.wait({first, second}, timeout=0.1)
        assert not done
    assert [reply.status for reply in await asyncio.gather(first, second)] == [503, 503]


async def test_a_disconnect_is_counted_and_leaves_other_requests_alone(
    post: Post,
) -> None:
    async with started(Hung(), drain=0) as service:
        sample = service.app.state.registry.get_sample_value
        body = {"recipe": RECIPE, "completions": ["4"]}
        leaves, stays = (
            asyncio.create_task(post("/score", body, service.url)) for _ in range(2)
        )
        while sample("reasoning_gym_queued_answers") < 2:
            await asyncio.sleep(0.01)
        leaves.cancel()
        while not sample(
            "reasoning_gym_requests_total", {"route": "/score", "code": "499"}
        ):
            await asyncio.sleep(0.01)
        assert sample("reasoning_gym_queued_answers") == 1
    assert (await stays).status == 503


async def test_a_gym_that_is_closed_ends_the_requests_that_it_scores(
    stock: WorkerStock, post: Post
) -> None:
    gym = AsyncReasoningGym(processes=1, start_worker=stock.lend, verify_timeout=60.0)
    async with started(gym) as service:
        recipe = {"task": "rush_hour", "seed": 4}
        hanging = {"recipe": recipe, "completions": ["<answer>A+99999999991</answer>"]}
        pending = asyncio.create_task(post("/score", hanging, url=service.url))
        while not service.app.state.registry.get_sample_value(
            "reasoning_gym_batches_total"
        ):
            await asyncio.sleep(0.01)
        await gym.close()
        assert (await asyncio.wait_for(pending, 30)).status == 503


@pytest.mark.nightly
async def test_a_task_that_hangs_does_not_starve_another_client(
    stock: WorkerStock, post: Post, problem: Problem
) -> None:
    moves = [f"<answer>A+9999999999{n}</answer>" for n in range(200)]
    hanging = {"recipe": {"task": "rush_hour", "seed": 4}, "completions": moves}
    body = {"recipe": problem.recipe.to_json(), "completions": [right(problem)]}
    elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with (
        AsyncReasoningGym(
            processes=2, verify_timeout=1.0, start_worker=stock.lend
        ) as gym,
        started(gym, drain=0) as service,
        aiohttp.ClientSession(service.url, connector=elsewhere) as hostile,
    ):
        waiting = asyncio.create_task(hostile.post("/score", json=hanging))
        sample = service.app.state.registry.get_sample_value
        while sample("reasoning_gym_batches_total") < 4:  # of all slots
            await asyncio.sleep(0.01)
        for _ in range(6):  # each waits for a slot
            reply = await post("/score", body, url=service.url)
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
    gym: AsyncReasoningGym,
    post: Post,
    problem: Problem,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "RETRIES", RetryPolicy(attempts=31, first_pause=0.1))
    label = problem.recipe.to_json()
    sample = {"response": right(problem), "label": label}
    batch = {"query": [right(problem)] * 3, "prompts": [""] * 3, "labels": [label] * 3}
    async with started(gym, queue=1) as service:
        asked = [("/openrlhf", batch), ("/slime", sample), ("/slime", sample)]
        replies = await asyncio.gather(
            *(post(*each, url=service.url) for each in asked)
        )
    assert [reply.body for reply in replies] == [{"rewards": [1.0] * 3}, 1.0, 1.0]
