"""Attacks on the reward service, each on a process of its own, and what honest clients notice.

python benchmarks/attacks.py [NAME …] [--checkout ../old]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parents[1]
SOFT_LIMIT = 1024
"""Open files that a shell usually allows the service."""

SECONDS = 30.0
GCD = {"task": "gcd", "seed": 4}
INTEGRATION = {"task": "simple_integration", "seed": 4}
ENDLESS = "<answer>A+99999999999{n}</answer>"
"""An answer of rush_hour on which its verifier works until the deadline."""


@dataclass
class Service:
    """A running service and what was seen of it."""

    pid: int
    url: str
    log: Path
    peak_mb: float = 0.0
    health: list[float] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def send(
        self, data: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection and send bytes on it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.suppress(ConnectionError):
            writer.write(data)
        return reader, writer

    async def watch(self) -> None:
        """Record the peak of the memory, and how long /health takes."""
        while True:
            begin = time.monotonic()
            try:
                await asyncio.wait_for(self._ask_health(), 60)
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                self.health.append(60.0)
            else:
                self.health.append(time.monotonic() - begin)
            with contextlib.suppress(OSError, IndexError):  # it has ended
                status = Path(f"/proc/{self.pid}/status").read_text()
                self.peak_mb = int(status.partition("VmHWM:")[2].split()[0]) / 1024
            await asyncio.sleep(0.05)

    async def _ask_health(self) -> None:
        reader, writer = await self.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        except AssertionError:
            raise OSError("refused") from None
        finally:
            writer.close()

    def report(self) -> str:
        slow = max(self.health, default=0.0)
        size = self.log.stat().st_size / 1000
        return f"/health ≤ {slow:.2f} s, peak {self.peak_mb:.0f} MB, log {size:.0f} kB"


@contextlib.asynccontextmanager
async def service(checkout: Path, *options: str) -> AsyncIterator[Service]:
    """Run a checkout's command with the usual limit of open files."""
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "reasoning_gym_environment",
                "rewards",
                "--port",
                "0",
            ),
            *("--processes", "2", *options),
            cwd=checkout,
            stderr=log,
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_NOFILE,
                (SOFT_LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
            ),
        )
        path = Path(log.name)
        while not path.read_text().rstrip().endswith("Ready"):
            await asyncio.sleep(0.1)
        match = re.search(r"Listening on (\S+)", path.read_text())
        assert match is not None
        running = Service(process.pid, match[1], path)
        watching = asyncio.create_task(running.watch())
        try:
            yield running
        finally:
            watching.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def head(path: str, length: int, *more: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json")
    return "\r\n".join([*lines, f"Content-Length: {length}", *more, "", ""]).encode()


def score_body(recipe: dict[str, Any], *texts: str) -> bytes:
    return json.dumps({"recipe": recipe, "completions": texts}).encode()


async def honest(running: Service, seconds: float, *, clients: int = 8) -> float:
    """Return the requests per second that honest clients get answered."""
    body, answered = score_body(GCD, *["<answer>2</answer>"] * 8), 0
    until = time.monotonic() + seconds

    async def ask(session: aiohttp.ClientSession) -> None:
        nonlocal answered
        while (left := until - time.monotonic()) > 0:
            try:
                headers = {"Content-Type": "application/json"}
                timeout = aiohttp.ClientTimeout(total=left)
                async with session.post(
                    "/score", data=body, headers=headers, timeout=timeout
                ) as reply:
                    await reply.read()
                    answered += reply.status == 200
                    if reply.status != 200:
                        await asyncio.sleep(0.2)
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
                await asyncio.sleep(0.05)

    connector = aiohttp.TCPConnector(limit=0, local_addr=("127.0.0.2", 0))
    async with aiohttp.ClientSession(running.url, connector=connector) as session:
        await asyncio.gather(*(ask(session) for _ in range(clients)))
    return answered / seconds


async def many(running: Service, count: int, data: bytes) -> list[Any]:
    opened = await asyncio.gather(
        *(running.send(data) for _ in range(count)), return_exceptions=True
    )
    return [each for each in opened if not isinstance(each, BaseException)]


async def idle(running: Service) -> str:
    """1,100 connections that send nothing, 1,100 that send half a head."""
    kept = await many(running, 1100, b"")
    kept += await many(running, 1100, b"POST /score HTTP/1.1\r\nHost")
    rate = await honest(running, 10)
    await asyncio.sleep(5)
    return f"{rate:.0f} honest requests/s; {len(kept)} opened"


async def keep_alive(running: Service) -> str:
    """A trainer with 3,000 keep-alive connections, three requests on each."""
    found: Counter[str] = Counter()
    body = (
        b'{"recipe": {"task": "gcd", "seed": 4}, "completions": ["<answer>2</answer>"]}'
    )

    async def use() -> None:
        try:
            reader, writer = await running.send(b"")
            for _ in range(3):
                writer.write(head("/score", len(body)) + body)
                reply = await asyncio.wait_for(reader.readuntil(b"]}"), 120)
                found[reply.split()[1].decode()] += 1
                await asyncio.sleep(1)
            writer.close()
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
            found[type(error).__name__] += 1

    await asyncio.gather(*(use() for _ in range(3000)))
    return str(dict(found))


async def post_raw(running: Service, data: bytes) -> str:
    reader, writer = await running.send(data)
    try:
        return (
            (await asyncio.wait_for(reader.readuntil(b"\r\n"), 120)).decode().split()[1]
        )
    except (OSError, asyncio.IncompleteReadError) as error:
        return type(error).__name__
    finally:
        writer.close()


async def wrong_list(running: Service) -> str:
    """A body of 4 MiB whose list has two million wrong elements, one with 400,000 odd names."""
    names = ",".join(f'"{number:x}":0' for number in range(400_000)).encode()
    seconds = []
    for route, body in (
        (
            "/openrlhf",
            b'{"query": [], "labels": [], "prompts": [' + b"1," * 2_000_000 + b"1]}",
        ),
        ("/score", b"{%b}" % names),
    ):
        begin = time.monotonic()
        status = await post_raw(running, head(route, len(body)) + body)
        seconds.append(f"{status} after {time.monotonic() - begin:.1f} s")
    await asyncio.sleep(1)
    return ", ".join(seconds)


async def compressed(running: Service) -> str:
    """60 bodies of 4 kB that inflate to 4 MiB."""
    packed = gzip.compress(b'"' + b" " * (4 * 2**20 - 2) + b'"')
    data = head("/score", len(packed), "Content-Encoding: gzip") + packed
    statuses = Counter(
        await asyncio.gather(*(post_raw(running, data) for _ in range(60)))
    )
    return f"{dict(statuses)}, {len(packed)} bytes each"


async def announced(running: Service) -> str:
    """64 bodies that announce 4 MiB and send nothing, again and again."""
    kept = await many(running, 64, head("/score", 4 * 2**20))
    rate = await honest(running, 10)
    return f"{rate:.0f} honest requests/s beside {len(kept)}"


async def unread(running: Service) -> str:
    """300 clients that don't read replies of megabytes, and 60 hostile bodies."""
    row = {
        "responses_create_params": {},
        "recipe": GCD,
        "padding": "é" * (2**20),
        "response": {"output": [{"type": "message", "content": "<answer>2</answer>"}]},
    }
    body = json.dumps(row, ensure_ascii=False).encode()
    lists = b'{"responses_create_params": {"a": [' + b"[]," * 1_300_000 + b"1]}}"
    packages = [head("/verify", len(body)) + body] * 300
    packages += [head("/verify", len(lists)) + lists] * 60
    statuses: Counter[str] = Counter()

    async def leave_unread(data: bytes) -> None:
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", running.port, limit=1024
            )
            writer.write(data)
            line = await asyncio.wait_for(reader.readuntil(b"\r\n"), SECONDS)
            statuses[line.decode().split()[1]] += 1
            await asyncio.sleep(SECONDS)
            writer.close()
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
            statuses[type(error).__name__] += 1

    hostile = asyncio.gather(*(leave_unread(data) for data in packages))
    rate = await honest(running, SECONDS)
    await hostile
    return f"{rate:.1f} honest requests/s meanwhile; {dict(statuses)}"


async def _hang(running: Service) -> asyncio.Future[Any]:
    """4,000 answers that each take 5 s, of 250 problems, from another address than honest ones."""

    async def ask(seed: int) -> str:
        body = score_body(
            {"task": "rush_hour", "seed": seed},
            *(ENDLESS.format(n=n) for n in range(16)),
        )
        return await post_raw(running, head("/score", len(body)) + body)

    async def ask_again(seed: int) -> None:
        while True:
            with contextlib.suppress(asyncio.TimeoutError, OSError):
                await ask(seed)
            await asyncio.sleep(1)

    return asyncio.gather(*(ask_again(seed) for seed in range(250)))


async def hanging(running: Service) -> str:
    """4,000 answers that each take 5 s."""
    before = await honest(running, 10)
    hanging = await _hang(running)
    await asyncio.sleep(1)
    rates = [await honest(running, SECONDS) for _ in range(3)]
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    during = ", ".join(f"{rate:.1f}" for rate in rates)
    return f"{before:.0f} honest requests/s before, {during} in three times {SECONDS:.0f} s"


async def terminated(running: Service) -> str:
    """SIGTERM while 4,000 answers wait that each take 5 s."""
    hanging = await _hang(running)
    await asyncio.sleep(2)
    begin = time.monotonic()
    os.kill(running.pid, signal.SIGTERM)
    while "Finished" not in (end := _state(running.pid)) and end:
        await asyncio.sleep(0.1)
        if time.monotonic() - begin > 400:
            break
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    return f"ended after {time.monotonic() - begin:.1f} s"


def _state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if stat == "Z" else stat


async def leaving(running: Service) -> str:
    """5,000 clients that leave, at all moments of a request."""
    body = score_body(INTEGRATION, *(f"<answer>x**{n}</answer>" for n in range(8)))
    data = head("/score", len(body)) + body
    other = b"POST /seed_session HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    gate = asyncio.Semaphore(100)

    async def leave(number: int) -> None:
        async with gate:
            whole = (data, other, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")[
                number % 3
            ]
            cut = len(whole) * (number % 7 + 1) // 7
            with contextlib.suppress(OSError):
                _, writer = await running.send(whole[:cut])
                await asyncio.sleep(number % 5 * 0.01)
                if number % 2:
                    writer.transport.abort()
                else:
                    writer.close()

    await asyncio.gather(*(leave(number) for number in range(5000)))
    await asyncio.sleep(2)
    async with (
        aiohttp.ClientSession(running.url) as session,
        session.get("/metrics") as reply,
    ):
        text = await reply.text()
    codes = re.findall(r'requests_total\{code="(\d+)",route="(\S+?)"\} (\S+)', text)
    return f"{codes}; {running.log.read_text().count('Traceback')} tracebacks"


ATTACKS: tuple[Callable[[Service], Awaitable[str]], ...] = (
    idle,
    keep_alive,
    wrong_list,
    compressed,
    announced,
    unread,
    hanging,
    terminated,
    leaving,
)


async def run(names: list[str], checkout: Path) -> None:
    for attack in ATTACKS:
        if not names or attack.__name__ in names:
            async with service(checkout) as running:
                found = await attack(running)
                print(f"{attack.__name__}: {found}; {running.report()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="attacks, by default all")
    parser.add_argument(
        "--checkout", type=Path, default=ROOT, help="whose service is attacked"
    )
    options = parser.parse_args()
    asyncio.run(run(options.names, options.checkout.resolve()))


if __name__ == "__main__":
    main()
