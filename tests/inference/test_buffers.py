"""Reused buffers hold whole replies, with nothing of earlier ones."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.inference.servers import ServerClient

AT_ONCE = 4


def client() -> ServerClient:
    return ServerClient(APIServerConfig(base_url="http://here/v1", model_name="m"))


async def parts_of(body: bytes, size: int) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), size):
        yield body[begin : begin + size]


async def read(client: ServerClient, body: bytes, size: int = 3) -> bytes:
    async with client._buffered(parts_of(body, size), most=2**30) as filled:
        await asyncio.sleep(0)
        return bytes(filled)


@given(bodies=st.lists(st.binary(max_size=40)), size=st.integers(1, 50))
def test_a_reused_buffer_yields_the_body_and_nothing_else(
    bodies: list[bytes], size: int
) -> None:
    async def one_after_another() -> list[bytes]:
        one = client()
        return [await read(one, body, size) for body in bodies]

    assert asyncio.run(one_after_another()) == bodies


async def test_bodies_read_concurrently_are_separate() -> None:
    one, bodies = client(), [bytes([number]) * (99 - number) for number in range(9)]
    for _ in range(2):
        assert await asyncio.gather(*(read(one, body) for body in bodies)) == bodies


async def test_few_bodies_are_in_memory_and_the_others_are_not_started() -> None:
    one, begun, end = client(), list[int](), asyncio.Event()

    async def parts(number: int) -> AsyncIterator[bytes]:
        begun.append(number)
        yield b"x"

    async def job(number: int) -> None:
        async with one._buffered(parts(number), most=2**30):
            await end.wait()

    jobs = asyncio.gather(*map(job, range(AT_ONCE + 3)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == [*range(AT_ONCE)]
    end.set()
    await jobs
    assert begun == [*range(AT_ONCE + 3)]


async def test_a_failure_halfway_leaves_later_bodies_intact() -> None:
    one = client()

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    for _ in range(AT_ONCE + 1):
        with pytest.raises(ConnectionResetError):
            async with one._buffered(broken(), most=2**30):
                pass
        with pytest.raises(ZeroDivisionError):
            async with one._buffered(parts_of(b"whole", 3), most=2**30):
                _ = 1 / 0
    assert await read(one, b"abc") == b"abc"
