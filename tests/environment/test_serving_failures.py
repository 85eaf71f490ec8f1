"""What a user sees when inference fails while it runs: sentences, exit statuses, and going on."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from serve_loop import HONEST, registration, serving_from, training, until_pulled
from trainer_api import until

from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.demo.trainer import ApiServer
from reasoning_gym_environment.errors import FixableError

UNKNOWN_MODEL = '{"error": {"message": "The model `m` does not exist.", "code": 404}}'


class RefusingServer(PolicyServer):
    """Answers as usual until it is given a refusal; then with nothing else."""

    refusal: type[web.HTTPException] | None = None
    body = ""
    refused = 0

    async def _complete(self, order: Any) -> Any:
        if self.refusal:
            self.refused += 1
            raise self.refusal(text=self.body, content_type="application/json")
        return await super()._complete(order)


class LeavingServer(RefusingServer):
    """Can also leave its port and come back to it."""

    async def come_back(self) -> None:
        await self.start(int(self.url.rpartition(":")[2]))


@pytest.mark.nightly
async def test_serve_waits_for_a_server_that_is_away_and_ends_where_asking_again_can_not_help(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        LeavingServer(HONEST, tokenizer) as server,
        serving_from(bench, server.url) as (command, trainer, _),
    ):
        await until_pulled(trainer, command, batches=1)
        await server.close()
        await command.until_logged("Lost a group of gcd, 1 in a row: ")
        before = trainer.batches
        await server.come_back()
        await command.until_logged("Inference is back after ")
        await until_pulled(trainer, command, batches=before + 3)
        [back] = [
            line for line in command.said().splitlines() if "Inference is back" in line
        ]
        assert " lost" in back
        assert command.said().count("Lost a group of gcd") == 1
        server.refusal, server.body = web.HTTPUnauthorized, '{"error": "Invalid key."}'
        assert await command.exit_code() == 2, command.said()
    assert command.said().splitlines()[-1] == (
        f"error: 5 groups in a row were lost; check the server at {server.url}/v1: 401 "
        f"Unauthorized from {server.url}/v1/chat/completions: Invalid key. (set OPENAI_API_KEY or "
        "--openai.api_key to a key that the server accepts)"
    )
    assert "Traceback" not in command.said()
    assert command.said().count("Lost a group of gcd") <= 2  # once a minute


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (
            "openai",
            UNKNOWN_MODEL,
            "/v1/chat/completions: The model `m` does not exist. (set --openai.model_name to a "
            "model that the server lists at /v1/models)",
        ),
        (
            "vllm",
            '{"detail": "Not Found"}',
            "/v1/completions (check --openai.base_url (it ends in /v1 at most servers) and "
            "--openai.server_type)",
        ),
    ],
)
async def test_serving_goes_on_after_an_outage_and_ends_with_what_else_can_not_help(
    kind: str, body: str, said: str, bench: Any, tokenizer: Any
) -> None:
    settings = {"ensure_scores_are_not_same": False, "max_token_length": 2048}
    async with (
        LeavingServer(HONEST, tokenizer) as server,
        ApiServer() as api,
        training(api, bench.folder, batch_size=8) as trainer,
        bench.unprepared(
            server.url, kind, rollout_server_url=api.url, **settings
        ) as env,
    ):
        job = asyncio.create_task(env.env_manager())
        await until(lambda: trainer.batches or job.done())
        await server.close()
        await until(lambda: env.statistics.counts["groups/lost"] or job.done())
        before = trainer.batches
        await server.come_back()
        await until(lambda: trainer.batches >= before + 3 or job.done())
        server.refusal, server.body = web.HTTPNotFound, body
        with pytest.raises(FixableError) as raised:
            await asyncio.wait_for(job, 120)
    assert raised.value.exit_status == 2
    assert str(raised.value) == (
        f"5 groups in a row were lost; check the server at {server.url}/v1: 404 Not Found from "
        f"{server.url}{said}"
    )


@pytest.mark.parametrize("kind", ["openai", "vllm", "sglang", "trl"])
async def test_a_dead_server_costs_no_group_that_another_could_serve(
    kind: str, bench: Any, tokenizer: Any
) -> None:
    async with (
        LeavingServer(HONEST, tokenizer) as first,
        PolicyServer(HONEST, tokenizer) as second,
        bench.environment(first.url, kind, others=[(second.url, kind)]) as env,
    ):
        await first.close()
        problems = [await env.get_next_item() for _ in range(8)]
        done = await asyncio.gather(*(env.run.groups.work_on(p) for p in problems))
        await first.come_back()
    assert all(done)
    assert env.statistics.counts["groups/collected"] == 8
    assert env.statistics.counts["groups/lost"] == 0


@pytest.mark.nightly
async def test_an_evaluation_while_serving_waits_for_a_server_that_is_away(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        RefusingServer(HONEST, tokenizer) as server,
        bench.environment(server.url, "vllm") as env,
    ):
        server.refusal = web.HTTPBadGateway  # as routers reply whose server is away
        await env.run.begin(registration(bench.folder))
        evaluating = asyncio.create_task(env.evaluate())
        # Others have given up.
        await until(lambda: server.refused > 3 or evaluating.done())
        server.refusal = None
        await asyncio.wait_for(evaluating, timeout=60)
    assert env.evaluation.report.numbers()["eval/unscored"] == 0
    assert env.statistics.counts["evaluation/failed_requests"] == 0


async def test_a_server_without_the_model_costs_no_group_either(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        RefusingServer(HONEST, tokenizer) as first,
        PolicyServer(HONEST, tokenizer) as second,
        bench.environment(first.url, others=[(second.url, "openai")]) as env,
    ):
        first.refusal, first.body = web.HTTPNotFound, UNKNOWN_MODEL
        problems = [await env.get_next_item() for _ in range(8)]
        done = await asyncio.gather(*(env.run.groups.work_on(p) for p in problems))
    assert all(done)
    assert env.statistics.counts["groups/collected"] == 8
    [warning] = [message for message in caplog.messages if "trying others" in message]
    assert warning == (
        f"The inference server at {first.url}/v1 fails, trying others: 404 Not Found from "
        f"{first.url}/v1/chat/completions: The model `m` does not exist. (set "
        "--openai.model_name to a model that the server lists at /v1/models)"
    )
