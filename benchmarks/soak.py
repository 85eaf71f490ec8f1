"""A long run of `serve` against a server that forgets requests, refuses some and breaks replies.

    python benchmarks/soak.py [--minutes 60] [--hangs 9] [--latency 0.6]

The real `serve` and the real Atropos API run as processes, with a stand-in trainer. Everything is
on: curriculum, signal, dumps at their limit, checkpoints, evaluations, wandb offline, and the page,
which is read every two seconds. At equal distances the server hangs: for five seconds it forgets
every request. In between, two percent of the replies are errors, some of them without valid text.
Prints groups per second in the first minute after a hang and later, memory, processes and
descriptors, and the run's own account at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from measure import family, memory_megabytes
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

HANG_SECONDS = 5.0
FAULTY = 0.02
GROUP_SIZE = 4
MINUTE = 60.0


class Calculator:
    """A policy that is right most of the time."""

    def sample(self, question: str, n: int) -> list[Sample]:
        numbers = map(int, re.findall(r"\d+", question))
        right = (math.lcm if "Multiple" in question else math.gcd)(*numbers)
        answers = random.choices((right, right + 1), weights=(0.6, 0.4), k=n)
        return [Sample(text=f"<answer>{answer}</answer>") for answer in answers]


class FaultyServer(PolicyServer):
    """A policy server with faults.

    Attributes:
        hangs: whether it forgets every request that arrives or is under way.
        faults: counts.
    """

    def __init__(self, tokenizer: Any, latency: float) -> None:
        super().__init__(Calculator(), tokenizer)
        self.hangs = False
        self._latency = latency
        self.faults: Counter[str] = Counter()
        self._rng = random.Random(0)

    async def _complete(self, request: PolicyRequest) -> list[Generation]:
        if is_probe(request):
            return await super()._complete(request)
        await asyncio.sleep(self._rng.uniform(0.1, 1.0) * self._latency)
        if self.hangs:
            self.faults["forgotten"] += 1
            await asyncio.sleep(1e6)
        if self._rng.random() < FAULTY:
            if self._rng.random() < 0.5:
                self.faults["500"] += 1
                raise web.HTTPInternalServerError(text="out of order")
            self.faults["502 that is not UTF-8"] += 1
            raise web.HTTPBadGateway(
                body="<h1>Passerelle défaillante</h1>".encode("latin-1")
            )
        return await super()._complete(request)


async def soak(minutes: float, hangs: int, latency: float, folder: Path) -> None:
    tokenizer_folder = build_tokenizer(folder / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    server = FaultyServer(tokenizer, latency)
    async with ApiServer() as api, server:
        trainer = Trainer(
            api.url,
            batch_size=8 * GROUP_SIZE,
            max_token_len=2**17,
            num_steps=ENDLESS,
            checkpoint_dir=folder,
            save_checkpoint_interval=20,
        )
        training = asyncio.create_task(trainer.run())
        with (folder / "serve.log").open("wb") as log:
            serve = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-m",
                    "reasoning_gym_environment",
                    "serve",
                    "--watch",
                    "0",
                ),
                *options(api.url, server.url, tokenizer_folder, folder),
                stdout=log,
                stderr=log,
                env={**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": str(folder)},
            )
            reads: Counter[str] = Counter()
            reading = asyncio.create_task(read_page(folder, reads))
            try:
                await watch(server, trainer, serve.pid, minutes * 60, hangs)
            finally:
                reading.cancel()
                serve.terminate()
                await serve.wait()
                training.cancel()
    print(f"exit status {serve.returncode}; faults: {dict(server.faults)}")
    evaluations = sum(" Evaluation: " in line for line in log_lines(folder))
    print(f"{reads['page']} reads of the page, {evaluations} evaluations")
    account = [
        line
        for line in log_lines(folder)
        if re.search("Groups: |mismatch|Counts", line)
    ]
    print("\n".join(account[-3:]) or f"no account in {folder / 'serve.log'}")


def options(api_url: str, url: str, tokenizer: Path, folder: Path) -> list[str]:
    env = {
        "rollout_server_url": api_url,
        "tokenizer_name": tokenizer,
        "group_size": GROUP_SIZE,
        "ensure_scores_are_not_same": False,
        "include_tasks": "gcd,lcm",
        "complexity_mode": "curriculum",
        "sampling": "signal",
        "steps_per_eval": 50,
        "total_steps": 10**6,
        "use_wandb": True,
        "data_dumps_dir": folder / "dumps",
        "max_dump_gb": 0.01,
    }
    server = {"base_url": f"{url}/v1", "model_name": "policy", "api_key": "x"}
    return [
        *(f"--env.{name}={value}" for name, value in env.items()),
        *(f"--openai.{name}={value}" for name, value in server.items()),
    ]


async def read_page(folder: Path, reads: Counter[str]) -> None:
    """Read what is new on the page every two seconds, as a browser does."""
    while not (
        found := re.search(r"Watch the run at (\S+)", "\n".join(log_lines(folder)))
    ):
        await asyncio.sleep(1)
    cursor = ""
    async with aiohttp.ClientSession(found[1], raise_for_status=True) as session:
        while True:
            async with session.get("api/index", params={"since": cursor}) as response:
                cursor = (await response.json())["cursor"]
            reads["page"] += 1
            await asyncio.sleep(2)


async def watch(
    server: FaultyServer, trainer: Trainer, pid: int, seconds: float, hangs: int
) -> None:
    """Print a line for each span that ends with a hang, and how fast the run is after a hang."""
    while trainer.groups == 0:
        await asyncio.sleep(0.5)
    span, ratios = seconds / (hangs + 1), []
    before = 0.0
    for number in range(hangs + 1):
        lengths = MINUTE, span - HANG_SECONDS - MINUTE
        first, later = [await rate(trainer, each) for each in lengths]
        if before:
            ratios.append((first / before, later / before))
        own, whole = descriptors(pid), sum(map(descriptors, family(pid)))
        print(
            f"span {number}: {first:.1f} groups/s in the first minute, later {later:.1f}; "
            f"{memory_megabytes(pid)}; {own} descriptors, {whole} with its children",
            flush=True,
        )
        before = (first * lengths[0] + later * lengths[1]) / sum(lengths)
        if number < hangs:
            server.hangs = True
            await asyncio.sleep(HANG_SECONDS)
            server.hangs = False
    first, later = (statistics.fmean(own) for own in zip(*ratios, strict=True))
    print(
        f"In the first minute after a hang {first:.0%} of the span before, later {later:.0%}"
    )


def descriptors(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except (FileNotFoundError, PermissionError):
        return 0  # it has ended, or is protected and we aren't root


async def rate(trainer: Trainer, seconds: float) -> float:
    """Return the groups per second that the trainer gets."""
    begin, groups = time.monotonic(), trainer.groups
    await asyncio.sleep(seconds)
    return (trainer.groups - groups) / (time.monotonic() - begin)


async def start_serve(
    settings: Mapping[str, Any], folder: Path
) -> asyncio.subprocess.Process:
    """Start `serve` with a configuration, which JSON writes as YAML; its log is in the folder."""
    config = folder / "serve.yaml"
    config.write_text(json.dumps(settings))
    command = ("-m", "reasoning_gym_environment", "serve", "--config", str(config))
    with (folder / "serve.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=log, stderr=log
        )


def log_lines(folder: Path) -> Sequence[str]:
    return (folder / "serve.log").read_text(errors="replace").splitlines()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--hangs", type=int, default=9)
    parser.add_argument(
        "--latency", type=float, default=0.6, help="of the slowest reply, seconds"
    )
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"in {place}")
    asyncio.run(soak(given.minutes, given.hangs, given.latency, place))
