"""The trainer's side of Atropos: the real API server, and a stand-in trainer that trains nothing.

Run as a program, this module is the API server (`run-api`) that `ApiServer` starts as a child
process. It exits when its standard input closes. The parent holds the other end, so the server
never outlives it.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from ..util.outages import UnreachableError, require_reachable
from ..util.retries import Retry, RetryPolicy

ENDLESS = 1_000_000
"""Steps to train; the clock or the user ends it."""


class MalformedGroupError(ValueError):
    """A group that a trainer can't use."""


def check_group(group: Mapping[str, Any], max_token_len: int) -> int:
    """Return a group's number of rows, which must be shorter than `max_token_len`.

    Raises:
        MalformedGroupError: with the first fault.
    """
    tokens = group["tokens"]
    masks = group["masks"]
    scores = group["scores"]
    logprobs = group.get("inference_logprobs") or masks
    if not len(tokens) == len(masks) == len(scores) == len(logprobs) > 0:
        raise MalformedGroupError(
            f"{len(tokens)} rows of tokens, {len(masks)} of masks, {len(scores)} scores, "
            f"{len(logprobs)} rows of logprobs"
        )
    if not all(math.isfinite(score) for score in scores):
        raise MalformedGroupError(f"scores {scores} are not all finite")
    for ids, mask, numbers in zip(tokens, masks, logprobs, strict=True):
        if not len(ids) == len(mask) == len(numbers):
            raise MalformedGroupError(
                f"a row has {len(ids)} tokens, {len(mask)} masks, {len(numbers)} logprobs"
            )
        if len(ids) >= max_token_len:
            raise MalformedGroupError(f"a row has {len(ids)} tokens of {max_token_len}")
        if any(
            mask_value not in (-100, token)
            for token, mask_value in zip(ids, mask, strict=True)
        ):
            raise MalformedGroupError("a mask is neither -100 nor its token")
    return len(tokens)


class Trainer:
    """A stand-in trainer: it registers at the Atropos API server, fetches batches, trains nothing.

    Args:
        batch_size: rows of one batch.
        num_steps: batches to pull before `run` returns.
        save_checkpoint_interval: steps between the environments' checkpoints; 0 for none.

    Attributes:
        batches, groups, rows: fetched so far.
    """

    def __init__(
        self,
        api_url: str,
        *,
        batch_size: int,
        max_token_len: int,
        num_steps: int,
        checkpoint_dir: Path,
        save_checkpoint_interval: int = 0,
        starting_step: int = 0,
    ) -> None:
        self.batches = 0
        self.groups = 0
        self.rows = 0
        self.api_url = api_url
        self._registration = {
            "wandb_group": "demo",
            "wandb_project": "demo",
            "batch_size": batch_size,
            "max_token_len": max_token_len,
            "checkpoint_dir": str(checkpoint_dir),
            "save_checkpoint_interval": save_checkpoint_interval,
            "starting_step": starting_step,
            "num_steps": num_steps,
        }
        self._max_token_len = max_token_len
        self._num_steps = num_steps

    @classmethod
    def for_groups(
        cls, api_url: str, *, group_size: int, checkpoint_dir: Path
    ) -> Trainer:
        """Return a trainer that runs until it is stopped."""
        return cls(
            api_url,
            batch_size=8 * group_size,
            max_token_len=2**17,
            num_steps=ENDLESS,
            checkpoint_dir=checkpoint_dir,
        )

    async def run(self) -> None:
        """Train for `num_steps`, or until cancelled. Raises MalformedGroupError."""
        async with aiohttp.ClientSession(
            self.api_url, raise_for_status=True
        ) as session:
            async with session.post("/register", json=self._registration):
                pass
            while self.batches < self._num_steps:
                async with session.get("/batch") as response:
                    batch = (await response.json())["batch"]
                if batch is None:
                    await asyncio.sleep(0.1)
                else:
                    self._train(batch)

    def _train(self, batch: list[dict[str, Any]]) -> None:
        self.rows += sum(check_group(group, self._max_token_len) for group in batch)
        self.groups += len(batch)
        self.batches += 1

    def __str__(self) -> str:
        return f"{self.batches} batches, {self.groups} groups, {self.rows} rollouts"


class StatusLine:
    """A line that is rewritten on a terminal, and repeated every few seconds elsewhere."""

    _next = 0.0

    def show(self, line: str) -> None:
        now = time.monotonic()
        if sys.stdout.isatty():
            sys.stdout.write(
                f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K"
            )
        elif now >= self._next:
            sys.stdout.write(f"{line}\n")
            self._next = now + 3.0
        sys.stdout.flush()

    def close(self) -> None:
        """End the line on a terminal."""
        if sys.stdout.isatty():
            sys.stdout.write("\n")


async def run_alone(trainer: Trainer, *, seconds: float) -> None:
    """Run the trainer for these seconds, and print what it has fetched.

    Raises:
        MalformedGroupError: the trainer received a group that it can't use.
        UnreachableError: the API server does not answer.
        ConfigurationError: the URL is malformed.
    """
    subject = "the Atropos API"
    hint = "start it with `run-api`"
    await require_reachable(
        [trainer.api_url],
        what=subject,
        hint=hint,
        seconds=0.0,
    )
    begin = time.monotonic()
    running = asyncio.ensure_future(trainer.run())
    line = StatusLine()
    try:
        while not running.done() and time.monotonic() < begin + seconds:
            await asyncio.wait([running], timeout=min(1.0, seconds))
            line.show(f"{time.monotonic() - begin:4.0f} s  fetched {trainer}")
        if running.done():
            running.result()
    except aiohttp.ClientError as error:
        raise UnreachableError(
            f"{subject} at {trainer.api_url} stopped answering: {hint}"
        ) from error
    finally:
        line.close()
        running.cancel()


class ApiServer:
    """Atropos's `run-api` on 127.0.0.1 as a child process, while entered (`async with`).

    The child has a session of its own, so that Ctrl-C in a terminal reaches only the parent.

    Attributes:
        url: without a trailing slash.
    """

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> ApiServer:
        """Start the server; raises RuntimeError if it doesn't answer."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            "--host",
            "127.0.0.1",
            "--port",
            str(self._port),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            await self._wait_until_ready()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop()

    async def _wait_until_ready(self) -> None:
        retry = Retry(RetryPolicy(seconds=60.0, first_pause=0.1))
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(self.url, raise_for_status=True):
                        return
                except aiohttp.ClientError as error:
                    if self._process.returncode is not None or not await retry.wait():
                        raise RuntimeError(
                            f"the Atropos API server did not start at {self.url} "
                            f"(exit status {self._process.returncode})"
                        ) from error

    async def _stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), 5.0)
        except asyncio.TimeoutError:
            self._process.kill()
            await self._process.wait()


if __name__ == "__main__":
    from atroposlib.cli import run_api

    def exit_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=exit_with_parent, daemon=True).start()
    run_api.main()
