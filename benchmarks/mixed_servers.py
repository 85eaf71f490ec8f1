"""A long run of `serve` against servers that differ in how they end, wait and fail.

    python benchmarks/mixed_servers.py [--minutes 15]

The real `serve` and the real Atropos API run as processes, with a stand-in trainer. The servers:

- one ends completions with words that nobody knows, and one in markers of GLM,
- one sends its headers and blank lines at once, and its reply much later,
- one blocks its event loop, at times for longer than a minute,
- one goes deaf for 80 s and never answers what it was asked meanwhile,
- one vanishes for 90 s without a packet and comes back, where network namespaces are allowed,
- one takes 45 s for each reply, and one refuses connections half of the time.

All use a tokenizer with a gap in its vocabulary, and every answer is right. Prints the gaps between
groups and the run's own account. Ends with status 1 and what failed unless the account is exact,
all sent rollouts arrived with score 1 and an advantage, and no gap is above GAP_LIMIT.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import math
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web
from soak import GROUP_SIZE, log_lines, start_serve
from transformers import AutoTokenizer

from reasoning_gym_environment.demo.policy import Sample
from reasoning_gym_environment.demo.server import (
    TURN_END,
    Generation,
    PolicyRequest,
    PolicyServer,
    build_tokenizer,
    is_probe,
)
from reasoning_gym_environment.demo.trainer import ENDLESS, ApiServer, Trainer

REPLY_SECONDS = (0.5, 2.0)
SLOW_SECONDS = 45.0
GAP_LIMIT = SLOW_SECONDS
"""Seconds between two groups. Servers that are gone or silent for longer are no excuse, since
others answer: at worst, all requests wait for the slowest of those."""

BLOCK_SECONDS = 75.0
"""Above the minute after which a silent server's requests are asked once more."""

BLOCK_EVERY = 10
HOLE_SECONDS = 80.0
SPAN_SECONDS = 100.0
"""Between two holes. The refusing server is up for half of it, and down for the other half."""

VANISH_SECONDS = 90.0
"""Above the minute after which keep-alive ends a connection to a node that is gone."""

NODE = "rg-mixed"
NODE_ADDRESS = "10.72.0.2"
OWN_ADDRESS = "10.72.0.1"
CLONE_NEWNET = 0x40000000
"""Of Linux's sched.h: Python has it from 3.12 on."""

TERMINATED = 128 + signal.SIGTERM
DRAIN_SECONDS = 20.0
"""How long the trainer may take to fetch what has been sent when the run ends."""

WORKERS = 32
"""Groups at a time: enough that slow and silent servers don't hold all of them."""

VOCABULARY_GAP = 50
"""Ids that no token has, below that of the token that ends a turn."""

UNKNOWN_WORDS = ("eos", "end_turn", "COMPLETE", "stop_sequence")


class Calculator:
    """A policy that is always right."""

    def sample(self, question: str, n: int) -> list[Sample]:
        numbers = map(int, re.findall(r"\d+", question))
        right = (math.lcm if "Multiple" in question else math.gcd)(*numbers)
        return [Sample(text=f"<answer>{right}</answer>")] * n


class Server(PolicyServer):
    """A policy server that replies after a while, in a thread and with an event loop of its own."""

    host = "127.0.0.1"

    def __init__(self, tokenizer: Path) -> None:
        super().__init__(Calculator(), AutoTokenizer.from_pretrained(tokenizer))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.port = 0
        self.replies = 0

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the server's thread, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def begin(self) -> None:
        """Start to serve."""
        self.call(self.start(self.port, self.host))
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
        with suppress(ConnectionResetError):  # another server has replied first
            while not (await asyncio.wait({reply}, timeout=0.5))[0]:
                await response.write(b"\n")
            # aiohttp's type also has bodies that stream.
            body: Any = reply.result().body
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


class Vanishing(Server):
    """Serves at another node, whose link goes down and comes up again. No packet says so."""

    host = NODE_ADDRESS

    def begin(self) -> None:
        self.call(self._enter_node())
        super().begin()

    async def _enter_node(self) -> None:
        """Open the sockets of this thread, which is the event loop's, at the node."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/run/netns/{NODE}").open() as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns to {namespace.name} failed")

    def disturb(self) -> None:
        time.sleep(SPAN_SECONDS / 4)
        while True:
            ip(f"-n {NODE} link set rg-there down")
            time.sleep(VANISH_SECONDS)
            ip(f"-n {NODE} link set rg-there up")
            time.sleep(SPAN_SECONDS)


def ip(command: str) -> None:
    """Run a command of iproute2; raise OSError if it fails."""
    done = subprocess.run(
        ["ip", *command.split()], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"ip {command}: {done.stderr.strip()}")


@contextmanager
def other_node() -> Iterator[bool]:
    """Make another node, as a network namespace with a link to this one, while entered.

    Yields whether that is allowed; prints why if it is not.
    """
    try:
        ip(f"netns add {NODE}")
    except OSError as error:
        print(f"No server vanishes: there is no network namespace for it ({error})")
        yield False
        return
    try:
        ip(f"link add rg-mixed-here type veth peer name rg-there netns {NODE}")
        ip(f"addr add {OWN_ADDRESS}/24 dev rg-mixed-here")
        ip("link set rg-mixed-here up")
        ip(f"-n {NODE} addr add {NODE_ADDRESS}/24 dev rg-there")
        ip(f"-n {NODE} link set rg-there up")
        yield True
    finally:
        ip(f"netns del {NODE}")
        # It would last as long as the sockets at the node.
        with suppress(OSError):  # it was not made
            ip("link del rg-mixed-here")


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
            self.call(self.start(self.port, self.host))


KINDS = (UnknownWords, Boxes, EarlyHeaders, Blocking, Deaf, Slow, Refusing)


def with_gap(tokenizer: Path) -> Path:
    """Move the id of a tokenizer's end of a turn above all others; return its folder."""
    file = tokenizer / "tokenizer.json"
    description = json.loads(file.read_text())
    vocabulary = description["model"]["vocab"]
    above = max(vocabulary.values()) + 1 + VOCABULARY_GAP
    for token in description["added_tokens"]:
        if token["content"] == TURN_END:
            token["id"] = above
    vocabulary[TURN_END] = above
    file.write_text(json.dumps(description))
    return tokenizer


class CheckingTrainer(Trainer):
    """A trainer that counts rows from which it can't learn what every reply says.

    Attributes:
        wrong: rows that don't have score 1.
        masked: rows without advantage.
    """

    wrong = masked = 0

    def _train(self, batch: list[dict[str, Any]]) -> None:
        super()._train(batch)
        for group in batch:
            self.wrong += sum(score != 1.0 for score in group["scores"])
            self.masked += sum(map(bool, group["overrides"]))


async def run(minutes: float, folder: Path) -> list[str]:
    """Run `serve`, print what came of it, and return what failed."""
    tokenizer = with_gap(build_tokenizer(folder / "tokenizer"))
    with other_node() as can_vanish:
        kinds = (*KINDS, Vanishing) if can_vanish else KINDS
        servers = [kind(tokenizer) for kind in kinds]
        for server in servers:
            server.begin()
        async with ApiServer() as api:
            trainer = CheckingTrainer(
                api.url,
                batch_size=GROUP_SIZE,
                max_token_len=2**17,
                num_steps=ENDLESS,
                checkpoint_dir=folder,
            )
            training = asyncio.create_task(trainer.run())
            serve = await start_serve(settings(api.url, servers, tokenizer), folder)
            try:
                gaps = await watch(serve, trainer, servers, minutes * 60.0)
            finally:
                if serve.returncode is None:
                    serve.terminate()
                status = await serve.wait()
                account = account_of(folder)
                await drain(trainer, account)
                training.cancel()
    report(servers, gaps)
    print(account or f"no account in {folder / 'serve.log'}")
    print(f"exit status {status}; {trainer}")
    return failures(account, trainer, max(gaps, default=0), status)


async def drain(trainer: Trainer, account: str) -> None:
    """Wait until the trainer has fetched all that an account says was sent, or for too long."""
    end = time.monotonic() + DRAIN_SECONDS
    while trainer.groups < count(account, "sent") and time.monotonic() < end:
        await asyncio.sleep(0.1)


def account_of(folder: Path) -> str:
    """Return the run's own account of its groups; empty if it has none."""
    accounts = [line for line in log_lines(folder) if "Groups: " in line]
    return accounts[-1].partition("Groups: ")[2] if accounts else ""


def count(account: str, name: str) -> int:
    """Return a number of an account, such as that of the groups that were sent."""
    number = re.search(rf"(\d+) {name}\b", account)
    return int(number[1]) if number else 0


def failures(
    account: str, trainer: CheckingTrainer, longest_gap: int, status: int
) -> list[str]:
    """Return what is wrong with a run, each as a sentence without a full stop."""
    started, collected, sent = (
        count(account, name) for name in ("started", "collected", "sent")
    )
    interrupted = count(account, "interrupted")
    sentences = []
    if status != TERMINATED:
        sentences.append(f"serve ended with status {status}, not {TERMINATED}")
    if not started or started != collected + interrupted or collected != sent:
        sentences.append(f"the account is not exact: {account or 'there is none'}")
    if trainer.rows != sent * GROUP_SIZE:
        sentences.append(
            f"{sent} groups were sent, and {trainer.rows} rollouts arrived instead of "
            f"{sent * GROUP_SIZE}"
        )
    if trainer.wrong:
        sentences.append(f"{trainer.wrong} right rollouts don't have score 1")
    if trainer.masked:
        sentences.append(f"{trainer.masked} whole rollouts have no advantage")
    if longest_gap > GAP_LIMIT:
        sentences.append(
            f"no group came for {longest_gap} s, longer than the slowest server's "
            f"{GAP_LIMIT:g} s"
        )
    return sentences


def settings(
    api_url: str, servers: Sequence[Server], tokenizer: Path
) -> dict[str, Any]:
    """Return the configuration of the run, which JSON writes as YAML."""
    env = {
        "rollout_server_url": api_url,
        "tokenizer_name": str(tokenizer),
        "group_size": GROUP_SIZE,
        "ensure_scores_are_not_same": False,
        "include_tasks": "gcd,lcm",
        "total_steps": 10**6,
        "max_batches_offpolicy": WORKERS,  # batches of one group
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
    serve: asyncio.subprocess.Process,
    trainer: Trainer,
    servers: Sequence[Server],
    seconds: float,
) -> Counter[int]:
    """Let the servers misbehave; return how many gaps between groups took so many seconds.

    Returns early if `serve` ends.
    """
    while trainer.groups == 0 and serve.returncode is None:
        await asyncio.sleep(0.5)
    for server in servers:
        threading.Thread(target=server.disturb, daemon=True).start()
    gaps: Counter[int] = Counter()
    end = time.monotonic() + seconds
    last, groups = time.monotonic(), trainer.groups
    next_line = last + 60.0
    while (now := time.monotonic()) < end and serve.returncode is None:
        await asyncio.sleep(0.1)
        if trainer.groups > groups:
            gaps[int(now - last)] += 1
            last, groups = now, trainer.groups
        if now >= next_line:
            next_line += 60.0
            replies = {type(each).__name__: each.replies for each in servers}
            longest = max(gaps, default=0)
            print(f"{groups} groups, longest gap {longest} s, {replies}", flush=True)
    gaps[int(now - last)] += 1
    return gaps


def report(servers: Sequence[Server], gaps: Counter[int]) -> None:
    """Print the replies and the gaps."""
    for server in servers:
        swallowed = (
            f", {server.swallowed} swallowed" if isinstance(server, Deaf) else ""
        )
        print(f"{type(server).__name__}: {server.replies} replies{swallowed}")
    print(f"gaps between groups: {dict(sorted(gaps.items()))} (seconds: number)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="mixed-"))
    print(f"in {place}")
    failed = asyncio.run(run(given.minutes, place))
    if failed:
        sys.exit(f"Failed: {'; '.join(failed)}.")
