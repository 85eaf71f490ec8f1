"""Seconds from the command to the first group at the trainer, and of `setup()` alone.

`serve` runs as a program between a policy that answers at once and a real `run-api`, with all tasks
and the default evaluation set; the clock starts with the program. 5 s of it Atropos sleeps. Another
environment, such as upstream's, is started in turn with ours.

    python benchmarks/startup.py --rounds 5
    python benchmarks/startup.py --rounds 5 --environment FILE.py:ClassName
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from long_completions import register_trainer
from rounds import in_turn, show
from throughput import OURS, build, load_class
from transformers import AutoTokenizer

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer, build_tokenizer
from reasoning_gym_environment.demo.trainer import ApiServer

GROUP_SIZE = 8
BATCH = 64
"""Rows that a trainer waits for at first: 8 groups."""
PATIENCE = 120.0
"""Seconds after which no group is waited for any more; the number is then missing."""
POLICY = ScriptedPolicy(["<think>well</think><answer>1</answer>", "I have no idea."])
"""Many verifiers pay a little for the first: upstream sends no group of equal scores."""


def command(environment: str | None, settings: dict[str, Any]) -> list[str]:
    """The program that serves, with its options."""
    program = ["-m", "reasoning_gym_environment"]
    if environment:
        program = [environment.rpartition(":")[0]]
    options = [
        word for name, value in settings.items() for word in (f"--{name}", str(value))
    ]
    return [sys.executable, *program, "serve", *options]


async def seconds_to_groups(
    environment: str | None, tokenizer: Path
) -> dict[str, float]:
    """Start the program and wait for its first group and its first batch in the API's queue."""
    policy = PolicyServer(POLICY, AutoTokenizer.from_pretrained(tokenizer))
    async with (
        ApiServer() as api,
        policy as server,
        aiohttp.ClientSession(api.url) as session,
    ):
        await register_trainer(api.url, 4096)
        settings = {
            "env.rollout_server_url": api.url,
            "env.tokenizer_name": tokenizer,
            "env.group_size": GROUP_SIZE,
            "env.use_wandb": False,
            "env.ensure_scores_are_not_same": False,
            "env.max_token_length": 4096,
            "env.total_steps": 1000,
            "env.max_num_workers": 16,
            "openai.base_url": f"{server.url}/v1",
            "openai.api_key": "x",
            "openai.server_type": "vllm",
            "openai.model_name": tokenizer,
        }
        begin = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *command(environment, settings),
            cwd=tempfile.mkdtemp(),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        found: dict[str, float] = {}
        try:
            for name, groups in (
                ("first group, s", 1),
                ("first batch, s", BATCH // GROUP_SIZE),
            ):
                while await queue_size(session) < groups:
                    assert process.returncode is None, f"{environment or OURS} ended"
                    if time.perf_counter() - begin > PATIENCE:
                        return found
                    await asyncio.sleep(0.05)
                found[name] = time.perf_counter() - begin
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
    return found


async def queue_size(session: aiohttp.ClientSession) -> int:
    async with session.get("/status") as response:
        return int((await response.json())["queue_size"])


async def seconds_of_setup(environment: str | None, tokenizer: Path) -> float:
    """Measure `setup()` alone, in this process."""
    env = build(load_class(environment), tokenizer, argparse.Namespace(delay=0.0))
    begin = time.perf_counter()
    await env.setup()
    seconds = time.perf_counter() - begin
    if isinstance(env, ReasoningGymEnv):
        await env.close()
    return seconds


async def measure(environment: str | None) -> dict[str, float]:
    tokenizer = build_tokenizer(Path(tempfile.mkdtemp()))
    found = await seconds_to_groups(environment, tokenizer)
    return {**found, "setup(), s": await seconds_of_setup(environment, tokenizer)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--environment", help="FILE.py:ClassName of another environment"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        logging.disable(logging.INFO)
        print(json.dumps(asyncio.run(measure(options.environment))))
        return
    own = [sys.executable, __file__, "--one"]
    programs = {OURS: own}
    if options.environment:
        programs[options.environment] = [*own, "--environment", options.environment]
    show(in_turn(programs, options.rounds))


if __name__ == "__main__":
    main()
