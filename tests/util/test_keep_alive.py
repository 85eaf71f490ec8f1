"""Connections to servers are watched by the kernel."""

from pathlib import Path

import pytest
from aiohttp import web
from asked_completions import REQUEST
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from process_tree import in_linux
from scripted_server import serving

from reasoning_gym_environment.atropos.api_client import ApiClient
from reasoning_gym_environment.inference.servers import ServerClient
from reasoning_gym_environment.util import keep_alive

KEEP_ALIVE_TIMER = "02"


def timer_of(request: web.Request) -> tuple[str, float]:
    """The kernel's timer at the client's end of a connection, and its seconds."""
    assert request.transport is not None
    _, port = request.transport.get_extra_info("peername")
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].partition(":")[2], 16) == port:
            kind, _, ticks = fields[5].partition(":")
            return kind, int(ticks, 16) / 100
    raise LookupError(port)


@in_linux
@pytest.mark.parametrize("client", ["inference", "api"])
async def test_the_kernel_watches_the_connections_of(client: str) -> None:
    timers: list[tuple[str, float]] = []

    async def reply(request: web.Request) -> web.Response:
        await request.read()
        timers.append(timer_of(request))
        choice = {"message": {"content": "4"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice, choice]})

    async with serving([web.route("*", "/{path:.*}", reply)]) as url:
        if client == "api":
            await ApiClient(url).request("POST", "/scored_data")
        else:
            config = APIServerConfig(
                base_url=f"{url}/v1", model_name="m", server_type="openai"
            )
            inference = ServerClient(config)
            await inference.sample(REQUEST)
            await inference.close()
    [(kind, seconds)] = timers
    assert kind == KEEP_ALIVE_TIMER
    assert 0 < seconds <= keep_alive.IDLE_SECONDS + 1
