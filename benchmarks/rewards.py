"""Load test of the reward service: requests per second, latencies, memory and errors.

Clients concurrently ask for scores that they know. They abandon one in ten requests. A client waits
a second when the service is full.

    python benchmarks/rewards.py --seconds 300 --clients 200

--url asks a running service, as one on Ray Serve. --against measures another checkout of this
repository in turn with this one:

    python benchmarks/rewards.py --seconds 10 --clients 32 --completions 8 --against ../old
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
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from measure import memory_megabytes

ROOT = Path(__file__).resolve().parents[1]
TASKS = (
    "gcd",
    "chain_sum",
    "spell_backward",
    "sudoku",
    "countdown",
    "rearc",
    "simple_integration",
)
SEEDS = 40
"""Problems of each task."""

WRONG = ("<answer>-7</answer>", "no answer at all")


class Known(NamedTuple):
    """A request and its correct scores."""

    recipe: dict[str, Any]
    completions: list[str]
    scores: list[float]


@dataclass(kw_only=True)
class Found:
    """Observations of the clients, and of the service's processes.

    Attributes:
        cpu_seconds: processor time of the service's own process, without its workers.
    """

    seconds: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    memory: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0


@contextlib.asynccontextmanager
async def service(checkout: Path) -> AsyncIterator[tuple[int, str]]:
    """Run a checkout's command; give its process id and URL once it is ready."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reasoning_gym_environment", "rewards", "--port", "0"),
        cwd=checkout,  # the first place to import from
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
        status = await process.wait()
        assert status == 0, f"exit status after SIGTERM: {status}"
        await reading


async def ask(
    session: aiohttp.ClientSession, recipe: Any, completions: list[str]
) -> list[Any]:
    """Return the scores; aiohttp.ClientResponseError with status 429 if the service is full."""
    body = {"recipe": recipe, "completions": completions}
    async with session.post("/score", json=body, raise_for_status=True) as response:
        return [score["score"] for score in (await response.json())["scores"]]


async def known_requests(completions: int) -> list[Known]:
    """Return requests of so many completions, scored in this process, before any load."""
    from reasoning_gym_environment import AsyncReasoningGym

    known = []
    async with AsyncReasoningGym() as gym:
        for task in TASKS:
            for problem in await gym.problems(task, count=SEEDS):
                texts = [f"<answer>{problem.oracle}</answer>", *WRONG]
                scores = [
                    (await gym.score(problem, text)).score or 0.0 for text in texts
                ]
                assert scores[0] == 1.0, problem
                for first in range(len(texts)):
                    chosen = [(first + n) % len(texts) for n in range(completions)]
                    request = [texts[n] for n in chosen], [scores[n] for n in chosen]
                    known.append(Known(problem.recipe.to_json(), *request))
    return known


async def client(
    session: aiohttp.ClientSession,
    known: list[Known],
    found: Found,
    *,
    rng: random.Random,
    until: float,
) -> None:
    """Ask until the time is over; all clients ask for the same few problems, as groups do."""
    while time.monotonic() < until:
        window = int(time.monotonic() * 20) % len(known)
        recipe, completions, right = known[(window + rng.randrange(24)) % len(known)]
        begin = time.monotonic()
        leaves = rng.random() < 0.1
        try:
            asked = ask(session, recipe, completions)
            scores = await asyncio.wait_for(
                asked, rng.uniform(0, 0.05) if leaves else 300
            )
        except asyncio.TimeoutError:
            found.counts["left"] += 1
            continue
        except aiohttp.ClientResponseError as error:
            found.counts[str(error.status)] += 1
            await asyncio.sleep(1)
            continue
        found.seconds.append(time.monotonic() - begin)
        found.counts["answered"] += 1
        found.counts["wrong scores"] += scores != right


async def watch(pid: int, found: Found, *, until: float) -> None:
    """Record the memory of all processes at the start, in the middle and at the end."""
    half = (until - time.monotonic()) / 2
    begin = cpu_seconds(pid)
    for wait in (0.0, half, half - 1):
        await asyncio.sleep(wait)
        found.memory.append(memory_megabytes(pid))
    found.cpu_seconds = cpu_seconds(pid) - begin


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(
    known: list[Known], seconds: float, clients: int, url: str | None, checkout: Path
) -> tuple[Found, str]:
    """Ask a service for so many seconds; give what was seen, and its metrics."""
    found = Found()
    running = contextlib.nullcontext((os.getpid(), url)) if url else service(checkout)
    async with running as (pid, url):
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(url, connector=connector) as session:
            until = time.monotonic() + seconds
            asked = (
                client(session, known, found, rng=random.Random(n), until=until)
                for n in range(clients)
            )
            await asyncio.gather(watch(pid, found, until=until), *asked)
            async with session.get("/metrics") as response:
                return found, await response.text() if response.ok else ""


async def compare(
    known: list[Known], seconds: float, clients: int, against: Path, rounds: int
) -> None:
    """Measure two checkouts in turn; print the median and the range of each."""
    results: dict[str, list[tuple[float, ...]]] = {}
    for number in range(rounds):
        for checkout in (against, ROOT) if number % 2 else (ROOT, against):
            found, _ = await measure(known, seconds, clients, None, checkout)
            answered = found.counts["answered"]
            row = (
                answered / seconds,
                statistics.median(found.seconds),
                found.cpu_seconds / answered,
            )
            results.setdefault("this" if checkout == ROOT else "other", []).append(row)
            assert not found.counts["wrong scores"], found.counts
    for name, rows in sorted(results.items()):
        columns = list(zip(*rows, strict=True))
        print(f"{name} checkout, median of {rounds} rounds (range):")
        for label, values, factor in zip(
            (
                "requests/s",
                "latency p50, ms",
                "CPU of the service's process a request, ms",
            ),
            columns,
            (1, 1000, 1000),
            strict=True,
        ):
            scaled = sorted(value * factor for value in values)
            print(
                f"  {label}: {statistics.median(scaled):.2f} ({scaled[0]:.2f} to {scaled[-1]:.2f})"
            )


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
    parser.add_argument("--url", help="of a running service")
    parser.add_argument("--completions", type=int, default=1, help="in one request")
    parser.add_argument(
        "--against", type=Path, help="another checkout, measured in turn"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of --against")
    options = parser.parse_args()
    asyncio.run(run(options))


async def run(options: argparse.Namespace) -> None:
    known = await known_requests(options.completions)
    seconds, clients = options.seconds, options.clients
    if options.against:
        await compare(
            known, seconds, clients, options.against.resolve(), options.rounds
        )
    else:
        show(*await measure(known, seconds, clients, options.url, ROOT), seconds)


if __name__ == "__main__":
    main()
