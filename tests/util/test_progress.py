"""Progress shows the jobs done, the rate, the time left and what is waited for."""

import asyncio
import logging
import re

import pytest

from reasoning_gym_environment.util.progress import Progress


async def test_off_a_terminal_progress_is_always_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    progress = Progress(
        "evaluation", total=50, done=10, log_every=0.01, note=lambda: "waiting"
    )
    with caplog.at_level(logging.INFO):
        async with progress.shown():
            for _ in range(10):
                progress.advance()
            while len(caplog.messages) < 3:
                await asyncio.sleep(0.01)
    assert re.fullmatch(
        r"evaluation:  40% 20/50 \[00:\d\d<00:\d\d, .*it/s, waiting\]",
        caplog.messages[-1],
    )


async def test_the_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress("evaluation", total=50, log_every=1e9)
    with caplog.at_level(logging.INFO):
        async with progress.shown():
            progress.advance()
            await asyncio.sleep(0.05)
    assert not caplog.messages
