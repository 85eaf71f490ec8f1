"""Replies are held whole in buffers that are reused, and bounded by their bytes."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.inference.reply_memory import (
    LARGE_BYTES,
    SMALL_REPLY,
    ReplyMemory,
)


async def read(memory: ReplyMemory, chunks: Sequence[bytes]) -> bytes:
    async with memory.hold() as reply:
        for chunk in chunks:
            await reply.append(chunk)
            await asyncio.sleep(0)
        with reply.view() as body:
            return bytes(body)


@given(chunks=st.lists(st.lists(st.binary(max_size=40))))
def test_a_reply_is_its_chunks(chunks: list[list[bytes]]) -> None:
    async def one_after_another() -> list[bytes]:
        memory = ReplyMemory()
        return [await read(memory, parts) for parts in chunks]

    assert asyncio.run(one_after_another()) == [b"".join(parts) for parts in chunks]


async def test_large_replies_at_the_same_time_and_after_each_other_are_separate() -> (
    None
):
    memory = ReplyMemory()
    for _ in range(2):
        replies = [
            [bytes([number]) * 300_000] * (3 + number) + [b"end"] for number in range(9)
        ]
        bodies = await asyncio.gather(*(read(memory, chunks) for chunks in replies))
        assert bodies == [b"".join(chunks) for chunks in replies]


async def test_large_replies_wait_for_room_and_small_ones_for_nobody() -> None:
    memory = ReplyMemory()
    half = bytes(LARGE_BYTES // 2)
    async with memory.hold() as first:
        await first.append(half)
        async with memory.hold() as second:
            await second.append(half)
            third = asyncio.create_task(read(memory, [half, b"x"]))
            assert await read(memory, [b"s" * SMALL_REPLY]) == b"s" * SMALL_REPLY
            # the oldest may go on, so that it ends
            await asyncio.wait_for(first.append(half), timeout=60)
            assert not third.done()
        assert not third.done()  # the first has taken the room of the second
    assert await asyncio.wait_for(third, timeout=60) == half + b"x"


async def test_a_reply_that_fails_gives_its_room_back() -> None:
    memory = ReplyMemory()

    async def broken() -> None:
        async with memory.hold() as reply:
            await reply.append(bytes(LARGE_BYTES))
            raise ConnectionResetError

    for _ in range(3):
        with pytest.raises(ConnectionResetError):
            await broken()
    assert await read(memory, [b"ab" * SMALL_REPLY, b"c"]) == b"ab" * SMALL_REPLY + b"c"


async def test_a_cancelled_reply_that_waits_holds_up_nobody() -> None:
    memory = ReplyMemory()
    async with memory.hold() as first:
        await first.append(bytes(LARGE_BYTES))
        waiting = [
            asyncio.create_task(read(memory, [bytes(2 * SMALL_REPLY)]))
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
    assert len(await asyncio.wait_for(waiting[1], timeout=60)) == 2 * SMALL_REPLY
