"""Connections to servers are watched by the kernel."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
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

NODE = "rg-keep-alive"
NODE_ADDRESS = "10.71.0.2"
OWN_ADDRESS = "10.71.0.1"

SWALLOW = f"""
import socket
listening = socket.create_server(("{NODE_ADDRESS}", 9999))
print("listens", flush=True)
accepted = [listening.accept()]
print("accepted", flush=True)
listening.accept()
"""
"""A server that accepts a connection and never replies."""


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True, capture_output=True)


@pytest.fixture
def node() -> Iterator[None]:
    """Another node, as a network namespace with a link to this one."""
    try:
        ip(f"netns add {NODE}")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces are not allowed here: {error}")
    try:
        ip(f"link add rg-here type veth peer name rg-there netns {NODE}")
        ip(f"addr add {OWN_ADDRESS}/24 dev rg-here")
        ip("link set rg-here up")
        ip(f"-n {NODE} addr add {NODE_ADDRESS}/24 dev rg-there")
        ip(f"-n {NODE} link set rg-there up")
        yield
    finally:
        ip(f"netns del {NODE}")


def timer_of(request: web.Request) -> tuple[str, float]:
    """The kernel's timer at the client's end of a connection, and its seconds."""
    assert request.transport is not None
    ports = [
        request.transport.get_extra_info(end)[1] for end in ("peername", "sockname")
    ]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ends = [int(end.partition(":")[2], 16) for end in fields[1:3]]
        if (
            ends == ports
        ):  # one that was closed before may have the same port at our end
            kind, _, ticks = fields[5].partition(":")
            return kind, int(ticks, 16) / 100
    raise LookupError(ports)


def client_socket(request: web.Request) -> socket.socket:
    """A duplicate of the socket at the client's end of a connection, which this process has."""
    assert request.transport is not None
    client = request.transport.get_extra_info("peername")
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, as the folder's own is
            if not str(descriptor.readlink()).startswith("socket:"):
                continue
            duplicate = socket.socket(fileno=os.dup(int(descriptor.name)))
            if duplicate.getsockname() == client:
                return duplicate
            duplicate.close()
    raise LookupError(client)


OPTIONS = {
    (socket.SOL_SOCKET, "SO_KEEPALIVE"): 1,
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE"): 30,
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL"): 10,
    (socket.IPPROTO_TCP, "TCP_KEEPCNT"): 3,
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT"): 60_000,
}
"""A node that is gone is noticed after a minute, with data under way or without."""


@in_linux
@pytest.mark.parametrize("client", ["inference", "api"])
async def test_the_kernel_watches_the_connections_of(client: str) -> None:
    timers: list[tuple[str, float]] = []
    options: dict[tuple[int, str], int] = {}

    async def reply(request: web.Request) -> web.Response:
        await request.read()
        timers.append(timer_of(request))
        with client_socket(request) as its_end:
            for level, name in OPTIONS:
                value = its_end.getsockopt(level, getattr(socket, name))
                options[level, name] = value
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
    assert options == OPTIONS


@in_linux
@pytest.mark.nightly
@pytest.mark.processes
async def test_a_request_to_a_node_that_vanishes_ends_with_its_connection(
    node: None,
) -> None:
    """Its link goes down: no packet says so, and no timeout of ours is near."""
    server = await asyncio.create_subprocess_exec(
        *("ip", "netns", "exec", NODE, sys.executable, "-c", SWALLOW),
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    config = APIServerConfig(
        base_url=f"http://{NODE_ADDRESS}:9999/v1",
        model_name="m",
        server_type="openai",
        timeout=1200,
    )
    client = ServerClient(config)
    try:
        assert await server.stdout.readline() == b"listens\n"
        request = asyncio.create_task(client.sample(REQUEST))
        assert await server.stdout.readline() == b"accepted\n"
        ip(f"-n {NODE} link set rg-there down")
        # keep-alive takes a minute; only an hour of silence would be the kernel's own limit
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(request, timeout=300)
    finally:
        server.kill()
        await server.wait()
        await client.close()
