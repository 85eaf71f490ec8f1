"""A site on 127.0.0.1: what it serves, and what it leaves when it closes."""

import asyncio
import gc
import socket

import pytest
from aiohttp import web

from reasoning_gym_environment.demo.site import LocalSite


def knock(url: str) -> socket.socket:
    """Connect without waiting until the connection is accepted."""
    host, port = url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex((host, int(port)))
    return client


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_a_site_that_closes_leaves_no_connection_open(turns: int) -> None:
    for _ in range(10):
        site = LocalSite(web.Application())
        url = await site.start()
        clients = [knock(url) for _ in range(5)]
        for _ in range(turns):  # of the loop: a connection is accepted in several
            await asyncio.sleep(0)
        await site.close()
        await site.close()  # does nothing
        for client in clients:
            client.close()
    gc.collect()  # a socket that nobody closed warns, which fails the test


async def test_a_site_starts_again_at_the_port_that_it_had() -> None:
    first = LocalSite(web.Application())
    url = await first.start()
    with knock(url):
        await first.close()
    second = LocalSite(web.Application())
    assert await second.start(int(url.rpartition(":")[2])) == url
    await second.close()
