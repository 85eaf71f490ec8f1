"""What servers are asked before anything else starts."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from scripted_server import serving

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.early_check import (
    SHOWN_MODELS,
    require_served,
)

Answer = Callable[[dict[str, Any]], tuple[int, str]]


def takes_all(body: dict[str, Any]) -> tuple[int, str]:
    return 200, "ok"


class Endpoint:
    """An endpoint that wants the key `k` and has some models.

    Args:
        answer: status and message of a request for the completion of a model.
    """

    def __init__(
        self, models: Any, answer: Answer = takes_all, *, can_chat: bool = True
    ) -> None:
        self._can_chat = can_chat
        self.asked: list[dict[str, Any]] = []
        self._models = models
        self._answer = answer

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": self._models})

    async def chat(self, request: web.Request) -> web.Response:
        if not self._can_chat:
            raise web.HTTPNotFound
        body = json.loads(await request.text())
        if request.headers.get("Authorization") != "Bearer k":
            return web.json_response({"error": {"message": "Wrong key"}}, status=401)
        if not body:
            return web.json_response({"error": {"message": "No model"}}, status=400)
        self.asked.append(body)
        status, message = self._answer(body)
        return web.json_response({"error": {"message": message}}, status=status)

    async def check(self, *, model: str = "a", key: str = "k", limit: int = 10) -> None:
        routes = [
            web.get("/v1/models", self.list_models),
            web.post("/v1/chat/completions", self.chat),
        ]
        async with serving(routes) as url:
            config = APIServerConfig(
                server_type="openai",
                base_url=f"{url}/v1",
                model_name=model,
                api_key=key,
            )
            await require_served([config], length_limit=limit)


async def test_a_served_model_with_a_good_key_costs_no_token() -> None:
    endpoint = Endpoint([{"id": "a", "max_model_len": 10}])
    await endpoint.check()
    assert endpoint.asked == []


async def test_a_wrong_key_is_refused_whoever_may_list_the_models() -> None:
    with pytest.raises(ConfigurationError, match=r"401 \(Wrong key\): set OPENAI_API_"):
        await Endpoint([{"id": "a"}]).check(key="another")


@pytest.mark.parametrize(
    ("status", "message"), [(404, "No such model"), (400, "b is not a valid model ID")]
)
async def test_a_wrong_model_is_refused_with_those_that_there_are(
    status: int, message: str
) -> None:
    endpoint = Endpoint([{"id": "a"}, {"id": "c"}], lambda body: (status, message))
    with pytest.raises(ConfigurationError, match=f"'b' .*{message}.* lists: a, c$"):
        await endpoint.check(model="b")
    assert [body["model"] for body in endpoint.asked] == ["b"]


async def test_of_many_models_those_with_like_names_are_shown() -> None:
    models = [{"id": f"family-{n}/size-{n}"} for n in range(300)]
    endpoint = Endpoint([*models, {"id": "qwen/qwen3-8b"}], lambda body: (404, ""))
    with pytest.raises(ConfigurationError) as raised:
        await endpoint.check(model="qwen/qwen3-9b")
    assert "lists: qwen/qwen3-8b" in str(raised.value)
    assert len(str(raised.value)) < 100 * SHOWN_MODELS


@pytest.mark.parametrize(
    ("status", "message"),
    [(200, ""), (400, "max_tokens is not supported by this model"), (500, "")],
)
async def test_an_unlisted_model_that_is_not_refused_passes(
    status: int, message: str
) -> None:
    endpoint = Endpoint([{"id": "a"}], lambda body: (status, message))
    await endpoint.check(model="an-alias")
    assert len(endpoint.asked) == 1


async def test_a_server_without_chats_has_its_model_checked_later() -> None:
    await Endpoint([{"id": "a"}], can_chat=False).check(model="b")


@pytest.mark.parametrize("models", [[], None, [{"name": "a"}], "a", [{"id": 7}]])
async def test_a_list_of_another_form_tells_nothing(models: Any) -> None:
    endpoint = Endpoint(models, lambda body: (404, "No such model"))
    await endpoint.check(model="b")
    assert endpoint.asked == []


async def test_a_context_that_is_too_short_is_refused() -> None:
    endpoint = Endpoint([{"id": "a", "max_model_len": 4096}])
    await endpoint.check(limit=4096)
    with pytest.raises(
        ConfigurationError, match=r"4096 tokens .* is 8192: lower --env"
    ):
        await endpoint.check(limit=8192)


async def test_a_server_that_does_not_answer_is_named_and_left_to_the_negotiation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = APIServerConfig(server_type="openai", base_url="http://127.0.0.1:1/v1")
    await require_served([config], length_limit=10)
    assert "http://127.0.0.1:1/v1 does not answer yet" in caplog.text
