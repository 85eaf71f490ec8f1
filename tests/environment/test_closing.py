"""An environment that closes leaves nothing open, and removes nothing that isn't its own."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from reasoning_gym_environment import ReasoningGymEnv


async def require_open(env: ReasoningGymEnv, file: Path) -> None:
    assert file.exists()
    assert await env.server.servers[0].client.is_alive()  # this opens the session


async def test_a_part_that_fails_to_close_keeps_no_other_open(
    bench: Any,
    script: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_space_left() -> None:
        raise OSError("no space left on device")

    file = bench.folder / "groups.jsonl"
    caplog.set_level("DEBUG")
    script.play("<answer>1</answer>")
    async with bench.playing(script, data_path_to_save_groups=str(file)) as env:
        await require_open(env, file)
        monkeypatch.setattr(env.problems, "close", no_space_left)
        env.statistics.counts["generation/timeouts"] += 1
        with pytest.raises(OSError, match="no space left"):
            await env.close()
    with pytest.raises(RuntimeError, match="Session is closed"):
        await env.server.servers[0].client.json("GET", "/health")
    assert not file.exists()  # it was empty
    assert "Counts of this run: 1 generation/timeouts" in caplog.messages


async def test_closing_goes_on_though_its_caller_is_cancelled(
    bench: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.play("<answer>1</answer>")
    began, may_go_on = asyncio.Event(), asyncio.Event()
    async with bench.playing(script) as env:
        pool = env.run.parts.pool
        close = pool.close

        async def close_later() -> None:
            began.set()
            await may_go_on.wait()
            await close()

        monkeypatch.setattr(pool, "close", close_later)
        first = asyncio.create_task(env.close())
        await began.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        again = asyncio.create_task(env.close())
        await asyncio.sleep(0.1)
        assert (first.cancelled(), again.done()) == (True, False)
        may_go_on.set()
        await again
        assert pool.pids == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
async def test_a_pipe_to_save_groups_to_is_not_removed(
    bench: Any, script: Any, tmp_path: Path
) -> None:
    script.play("<answer>1</answer>")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        async with bench.playing(script, data_path_to_save_groups=str(pipe)):
            pass
    finally:
        os.close(reader)
    assert pipe.is_fifo()
