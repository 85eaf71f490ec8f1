"""The reward service under load: requests per second, latencies, memory, and what goes wrong.

Clients ask side by side for scores of completions whose right score each of them knows. One in ten
requests is left in the middle. Where the service is full a client waits as told and asks again.

    python benchmarks/rewards.py --seconds 300 --clients 200

With --url a service that runs already is asked, as one on Ray Serve.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
from measure import memory_megabytes

TASKS = ("gcd", "chain_sum", "spell_backward", "sudoku", "countdown", "rearc", "simple_integration")
SEEDS = 40
"""Problems of each task."""

WRONG = ("<answer>-7</answer>", "no answer at all")


class Known(NamedTuple):
    """A request and the score that is its right answer."""

    recipe: dict[str, Any]
    completion: str
    score: float


@dataclass(kw_only=True)
class Found:
    """What the clients saw."""

    seconds: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    memory: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def service() -> AsyncIterator[tuple[int, str]]:
    """Run the command; gives its process id and its URL once it is ready."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reasoning_gym_environment", "rewards", "--port", "0"),
        stderr=PIPE,
        stdout=DEVNULL,
    )
    assert process.stderr is not None
    url = ""
    while line := (await process.stderr.readline()).decode():
        if match := re.search(r"Listening on (\S+)", line):
            url = match[1]
        if line.rstrip().endswith("Ready"):
            break
    reading = asyncio.create_task(process.stderr.read())
    try:
        yield process.pid, url
    finally:
        process.terminate()
        print(f"exit status after SIGTERM: {await process.wait()}")
        await reading


async def ask(session: aiohttp.ClientSession, recipe: Any, completions: list[str]) -> list[Any]:
    """Give the scores; raises aiohttp.ClientResponseError, with status 429 where it is full."""
    body = {"recipe": recipe, "completions": completions}
    async with session.post("/score", json=body, raise_for_status=True) as response:
        return [score["score"] for score in (await response.json())["scores"]]


async def known_requests(session: aiohttp.ClientSession) -> list[Known]:
    """Score each completion by itself, before there is any load."""
    from reasoning_gym_environment import AsyncReasoningGym

    known = []
    async with AsyncReasoningGym() as gym:
        for task in TASKS:
            for problem in await gym.problems(task, count=SEEDS):
                recipe = problem.recipe.to_json()
                texts = [f"<answer>{problem.oracle}</answer>", *WRONG]
                scores = [(await gym.score(problem, text)).score for text in texts]
                assert scores[0] == 1.0, problem
                known += [
                    Known(recipe, text, score or 0.0)
                    for text, score in zip(texts, scores, strict=True)
                ]
    assert await ask(session, known[0].recipe, [known[0].completion]) == [1.0]
    return known


async def client(
    session: aiohttp.ClientSession,
    known: list[Known],
    found: Found,
    *,
    rng: random.Random,
    until: float,
) -> None:
    """Ask until the time is over; all clients look at the same few problems, as groups do."""
    while time.monotonic() < until:
        window = int(time.monotonic() * 20) % len(known)
        recipe, completion, right = known[(window + rng.randrange(24)) % len(known)]
        begin = time.monotonic()
        leaves = rng.random() < 0.1
        try:
            asked = ask(session, recipe, [completion])
            [score] = await asyncio.wait_for(asked, rng.uniform(0, 0.05) if leaves else 300)
        except asyncio.TimeoutError:
            found.counts["left"] += 1
            continue
        except aiohttp.ClientResponseError as error:
            found.counts[str(error.status)] += 1
            await asyncio.sleep(1)
            continue
        found.seconds.append(time.monotonic() - begin)
        found.counts["answered"] += 1
        found.counts["wrong neighbour"] += score != right


async def watch(pid: int, found: Found, *, until: float) -> None:
    """Take the memory of all processes at the start, in the middle and at the end."""
    half = (until - time.monotonic()) / 2
    for wait in (0.0, half, half - 1):
        await asyncio.sleep(wait)
        found.memory.append(memory_megabytes(pid))


async def measure(seconds: float, clients: int, url: str | None) -> None:
    found = Found()
    async with contextlib.nullcontext((os.getpid(), url)) if url else service() as (pid, url):
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(url, connector=connector) as session:
            known = await known_requests(session)
            until = time.monotonic() + seconds
            asked = (
                client(session, known, found, rng=random.Random(n), until=until)
                for n in range(clients)
            )
            await asyncio.gather(watch(pid, found, until=until), *asked)
            async with session.get("/metrics") as response:
                metrics = await response.text() if response.ok else ""
    show(found, metrics, seconds)


def show(found: Found, metrics: str, seconds: float) -> None:
    cuts = statistics.quantiles(found.seconds, n=100)
    print(f"requests answered per second: {found.counts['answered'] / seconds:.0f}")
    print(f"seconds at p50, p90, p99: {cuts[49]:.3f}, {cuts[89]:.3f}, {cuts[98]:.3f}")
    print(f"longest: {max(found.seconds):.3f}")
    print(f"requests: {dict(found.counts)}")
    for when, memory in zip(("start", "middle", "end"), found.memory, strict=True):
        print(f"at the {when}: {memory}")
    for name in ("worker_restarts", "batches", "batched_answers"):
        match = re.search(rf"^reasoning_gym_{name}_total (\d+)", metrics, re.M)
        print(f"{name}: {match[1] if match else '?'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--url", help="of a service that runs already")
    options = parser.parse_args()
    asyncio.run(measure(options.seconds, options.clients, options.url))


if __name__ == "__main__":
    main()
