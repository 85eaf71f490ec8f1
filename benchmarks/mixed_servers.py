"""A long run of `serve` against servers that differ in how they end, wait and fail.

    python benchmarks/mixed_servers.py [--minutes 15]

The real `serve` and the real Atropos API run as processes, with a stand-in trainer. The servers:

- one ends completions with words that nobody knows, and one in markers of GLM,
- one sends its headers and blank lines at once, and its reply much later,
- one blocks its event loop, at times for longer than a minute,
- one goes deaf for 80 s and never answers what it was asked meanwhile,
- one takes 45 s for each reply, and one refuses connections half of the time.

Prints the longest gap between groups, which is to be no longer than the slowest server's reply, and
the run's own account, whose sums must be exact.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from aiohttp import web
from soak import GROUP_SIZE, Calculator, log_lines
from transformers import AutoTokenizer

from reasoning_gym_environment.demo.policy import Sample
from reasoning_gym_environment.demo.server import (
    Generation,
    PolicyRequest,
    PolicyServer,
    build_tokenizer,
    is_probe,
)
from reasoning_gym_environment.demo.trainer import ENDLESS, ApiServer, Trainer

REPLY_SECONDS = (0.5, 2.0)
SLOW_SECONDS = 45.0
BLOCK_SECONDS = 75.0
"""Above the minute after which a silent server's requests are asked once more."""

BLOCK_EVERY = 10
HOLE_SECONDS = 80.0
SPAN_SECONDS = 100.0
"""Between two holes. The refusing server is up for half of it, and down for the other half."""

UNKNOWN_WORDS = ("eos", "end_turn", "COMPLETE", "stop_sequence")


class Server(PolicyServer):
    """A policy server that replies after a while, in a thread and with an event loop of its own."""

    def __init__(self, tokenizer: Path, port: int = 0) -> None:
        super().__init__(Calculator(), AutoTokenizer.from_pretrained(tokenizer))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.port = port
        self.replies = 0

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the server's thread, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def begin(self) -> None:
        """Start to serve."""
        self.call(self.start(self.port))
        self.port = int(self.url.rpartition(":")[2])

    def disturb(self) -> None:
        """Do what the server does now and then, in a thread of its own."""

    async def _complete(self, request: PolicyRequest) -> list[Generation]:
        if not is_probe(request):
            await self._work()
            self.replies += 1
        return await super()._complete(request)

    async def _work(self) -> None:
        await asyncio.sleep(random.uniform(*REPLY_SECONDS))


class UnknownWords(Server):
    """Ends completions with words of its own."""

    async def _complete(self, request: PolicyRequest) -> list[Generation]:
        given = await super()._complete(request)
        return [
            each._replace(finish_reason=random.choice(UNKNOWN_WORDS)) for each in given
        ]


class Boxes(Server):
    """Writes GLM's markers around its answers."""

    def __init__(self, tokenizer: Path) -> None:
        super().__init__(tokenizer)
        self._policy = _Boxing()


class _Boxing(Calculator):
    def sample(self, question: str, n: int) -> list[Sample]:
        return [
            Sample(text=f"<|begin_of_box|>{sample.text}<|end_of_box|>")
            for sample in super().sample(question, n)
        ]


class EarlyHeaders(Server):
    """Sends its headers and blank lines at once, and its reply after many seconds."""

    async def _completion(self, request: web.Request) -> Any:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        reply = asyncio.ensure_future(super()._completion(request))
        while not (await asyncio.wait({reply}, timeout=0.5))[0]:
            await response.write(b"\n")
        body: Any = reply.result().body  # aiohttp's type also has bodies that stream
        await response.write(body)
        return response

    async def _work(self) -> None:
        await asyncio.sleep(random.uniform(5.0, 20.0))


class Blocking(Server):
    """Blocks its event loop while it generates, as `trl vllm-serve` does."""

    async def _work(self) -> None:
        is_long = self.replies % BLOCK_EVERY == BLOCK_EVERY - 1
        time.sleep(BLOCK_SECONDS if is_long else random.uniform(*REPLY_SECONDS))


class Deaf(Server):
    """Forgets what it was asked in a hole, and answers no health probe meanwhile."""

    is_deaf = False
    swallowed = 0

    def disturb(self) -> None:
        while True:
            time.sleep(SPAN_SECONDS)
            self.is_deaf = True
            time.sleep(HOLE_SECONDS)
            self.is_deaf = False

    async def _work(self) -> None:
        await super()._work()
        if self.is_deaf:
            self.swallowed += 1
            await asyncio.Event().wait()

    async def _health(self, request: web.Request) -> web.Response:
        while self.is_deaf:
            await asyncio.sleep(0.1)
        return await super()._health(request)


class Slow(Server):
    """Takes long for each reply, and answers health probes."""

    async def _work(self) -> None:
        await asyncio.sleep(SLOW_SECONDS)


class Refusing(Server):
    """Refuses connections for half of the time, and breaks those that it has."""

    def disturb(self) -> None:
        while True:
            time.sleep(SPAN_SECONDS / 2)
            self.call(self.close())
            time.sleep(SPAN_SECONDS / 2)
            self.call(self.start(self.port))


KINDS = (UnknownWords, Boxes, EarlyHeaders, Blocking, Deaf, Slow, Refusing)


async def run(minutes: float, folder: Path) -> None:
    """Run `serve`, and print what came of it."""
    tokenizer = build_tokenizer(folder / "tokenizer")
    servers: list[Server] = [kind(tokenizer) for kind in KINDS]
    for server in servers:
        server.begin()
    async with ApiServer() as api:
        trainer = Trainer(
            api.url,
            batch_size=GROUP_SIZE,
            max_token_len=2**17,
            num_steps=ENDLESS,
            checkpoint_dir=folder,
        )
        training = asyncio.create_task(trainer.run())
        config = folder / "serve.yaml"
        config.write_text(json.dumps(settings(api.url, servers, tokenizer)))
        command = ("-m", "reasoning_gym_environment", "serve", "--config", config)
        with (folder / "serve.log").open("wb") as log:
            serve = await asyncio.create_subprocess_exec(
                sys.executable, *map(str, command), stdout=log, stderr=log
            )
        try:
            gaps = await watch(trainer, servers, minutes * 60.0)
        finally:
            serve.terminate()
            await serve.wait()
            training.cancel()
    report(servers, gaps, folder)
    print(f"exit status {serve.returncode}; {trainer}")


def settings(api_url: str, servers: list[Server], tokenizer: Path) -> dict[str, Any]:
    """Return the configuration of the run, which JSON writes as YAML."""
    env = {
        "rollout_server_url": api_url,
        "tokenizer_name": str(tokenizer),
        "group_size": GROUP_SIZE,
        "ensure_scores_are_not_same": False,
        "include_tasks": "gcd,lcm",
        "total_steps": 10**6,
        "use_wandb": False,
        "max_token_length": 2048,
        "data_dumps_dir": str(tokenizer.parent / "dumps"),
    }
    openai = [
        {
            "server_type": "vllm",
            "base_url": f"{server.url}/v1",
            "model_name": "policy",
            "api_key": "x",
        }
        for server in servers
    ]
    return {"env": env, "openai": openai}


async def watch(
    trainer: Trainer, servers: list[Server], seconds: float
) -> Counter[int]:
    """Let the servers misbehave; return how many gaps between groups took so many seconds."""
    while trainer.groups == 0:
        await asyncio.sleep(0.5)
    for server in servers:
        threading.Thread(target=server.disturb, daemon=True).start()
    gaps: Counter[int] = Counter()
    end = time.monotonic() + seconds
    last, groups = time.monotonic(), trainer.groups
    next_line = last + 60.0
    while (now := time.monotonic()) < end:
        await asyncio.sleep(0.1)
        if trainer.groups > groups:
            gaps[int(now - last)] += 1
            last, groups = now, trainer.groups
        if now >= next_line:
            next_line += 60.0
            replies = {type(each).__name__: each.replies for each in servers}
            print(f"{groups} groups, longest gap {max(gaps)} s, {replies}", flush=True)
    gaps[int(now - last)] += 1
    return gaps


def report(servers: list[Server], gaps: Counter[int], folder: Path) -> None:
    """Print the gaps and the run's account."""
    for server in servers:
        swallowed = (
            f", {server.swallowed} swallowed" if isinstance(server, Deaf) else ""
        )
        print(f"{type(server).__name__}: {server.replies} replies{swallowed}")
    print(f"gaps between groups: {dict(sorted(gaps.items()))} (seconds: number)")
    account = [line for line in log_lines(folder) if "Groups: " in line]
    print("\n".join(account[-1:]) or f"no account in {folder / 'serve.log'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="mixed-"))
    print(f"in {place}")
    asyncio.run(run(given.minutes, place))
