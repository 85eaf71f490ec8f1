"""Idle connections beside clients of the reward service: do they take the clients' time?

Ten clients ask for scores, in turn with and without 1,000 connections of another process: a third
of them has sent nothing, a third half a head, a third one request. What the service closes is
opened again.

    python benchmarks/idle_connections.py --seconds 10 --rounds 5
    bash -c 'ulimit -n 1024; python benchmarks/idle_connections.py --connections 900'
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
from rewards import ROOT, Known, ask, known_requests, service

from reasoning_gym_environment.service.server import raise_file_limit

CLIENTS = 10

HEAD = "GET /health HTTP/1.1\r\nHost: x\r\n"
SENT = ("", HEAD, f"{HEAD}\r\n")
"""By idle connections: nothing, half a head, a request."""


async def hold(url: str, sent: str) -> None:
    """Keep a connection that waits, and open another one when the service has closed it."""
    address = urlsplit(url)
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(
                address.hostname, address.port
            )
            writer.write(sent.encode())
            while await reader.read(2**16):
                pass
            writer.close()
        await asyncio.sleep(1)


async def hold_all(url: str, connections: int) -> None:
    """Hold connections until this process is killed."""
    raise_file_limit()
    await asyncio.gather(
        *(hold(url, SENT[number % len(SENT)]) for number in range(connections))
    )


@contextlib.asynccontextmanager
async def idle_connections(url: str, connections: int) -> AsyncIterator[None]:
    """Hold connections in a process of their own, once they have been opened for a second."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--connections", str(connections), "--hold", url)
    )
    try:
        await asyncio.sleep(3)
        yield
    finally:
        process.kill()
        await process.wait()
        await asyncio.sleep(1)


async def request_seconds(
    session: aiohttp.ClientSession, known: list[Known], seconds: float
) -> list[float]:
    """Return how long each request of ten clients took."""
    until = time.monotonic() + seconds
    taken = []

    async def client(rng: random.Random) -> None:
        while time.monotonic() < until:
            recipe, completions, right = rng.choice(known)
            begin = time.monotonic()
            assert await ask(session, recipe, completions) == right
            taken.append(time.monotonic() - begin)

    await asyncio.gather(*(client(random.Random(n)) for n in range(CLIENTS)))
    return taken


async def run(options: argparse.Namespace) -> None:
    if options.hold:
        await hold_all(options.hold, options.connections)
        return
    known = await known_requests(1)
    results: dict[str, list[tuple[float, float, float]]] = {"without": [], "with": []}
    async with service(ROOT) as (_, url), aiohttp.ClientSession(url) as session:
        await request_seconds(session, known, options.seconds)  # warms it up
        for number in range(2 * options.rounds):
            name = "with" if number % 4 in (1, 2) else "without"
            holding = (
                idle_connections(url, options.connections)
                if name == "with"
                else contextlib.nullcontext()
            )
            async with holding:
                taken = await request_seconds(session, known, options.seconds)
            cuts = statistics.quantiles(taken, n=100)
            results[name].append(
                (len(taken) / options.seconds, 1000 * cuts[49], 1000 * cuts[98])
            )
    for name, rows in results.items():
        print(f"{name} {options.connections} idle connections, median (range):")
        labels = ("requests/s", "p50, ms", "p99, ms")
        for label, values in zip(labels, zip(*rows, strict=True), strict=True):
            middle = statistics.median(values)
            print(f"  {label}: {middle:.1f} ({min(values):.1f} to {max(values):.1f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hold", metavar="URL", help="only hold connections to it")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
