"""Groups a second, stalls and processor time with completions as reasoning models write them.

Groups of 16, 8,000 tokens each with logprobs, 64 in flight: an inference server that replies
as `vllm serve` does and a real `run-api`, each in a process of its own, over HTTP. The trainer
registers and takes no batch: delivering a group costs the API ten times what is measured here.

    python benchmarks/long_completions.py
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web
from atroposlib.envs.base import APIServerConfig
from measure import LoopMonitor, ProcessorTime, memory_megabytes
from transformers import AutoTokenizer

from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer, build_tokenizer
from reasoning_gym_environment.demo.trainer import ApiServer
from reasoning_gym_environment.util.concurrency import SWITCH_SECONDS

GROUP_SIZE = 16
THOUGHT = "I try one thing after another, and 3 times 14 is what then? "


class LongServer(PolicyServer):
    """Answers every group at once with the same long completions; what it sends is made before.

    Args:
        tokens: of each completion.
    """

    def __init__(self, tokenizer: Any, *, tokens: int) -> None:
        super().__init__(ScriptedPolicy([""]), tokenizer)
        rng = random.Random(0)
        self._choices = [
            json.dumps(self._choice(number, tokens, rng)).encode()
            for number in range(GROUP_SIZE)
        ]

    def _choice(self, number: int, tokens: int, rng: random.Random) -> dict[str, Any]:
        answer = self._tokenizer.encode(f"</think><answer>{number}</answer>")
        thought = self._tokenizer.encode(f"<think>{THOUGHT * (tokens // 4)}")
        ids = [*thought[: tokens - len(answer)], *answer]
        # As engines have them.
        logprobs = [float(np.float32(-rng.expovariate(2))) for _ in ids]
        names = [self._tokenizer.decode([token]) for token in ids]
        return {
            "index": number,
            "text": self._tokenizer.decode(ids),
            "finish_reason": "stop",
            "stop_reason": None,
            "token_ids": ids,
            "logprobs": {
                "text_offset": list(range(len(ids))),
                "token_logprobs": logprobs,
                "tokens": names,
                "top_logprobs": [
                    {name: logprob}
                    for name, logprob in zip(names, logprobs, strict=True)
                ],
            },
        }

    async def _completion(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["max_tokens"] == 1:
            return await super()._completion(request)
        prompt = b'{"prompt_token_ids": ' + json.dumps(body["prompt"]).encode() + b", "
        choices = b", ".join(
            prompt + choice[1:] for choice in self._choices[: body["n"]]
        )
        reply = b'{"object": "text_completion", "choices": [' + choices + b"]}"
        return web.Response(body=reply, content_type="application/json")


async def serve(tokenizer: Path, tokens: int) -> None:
    """Serve until standard input closes; the URL is the first line of the output."""
    async with LongServer(
        AutoTokenizer.from_pretrained(tokenizer), tokens=tokens
    ) as server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextlib.asynccontextmanager
async def long_server(tokenizer: Path, tokens: int) -> AsyncIterator[str]:
    """Run the server in a process of its own; gives its URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--serve", str(tokenizer), "--tokens", str(tokens)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


async def register_trainer(url: str, tokens: int) -> None:
    """Register as a trainer that waits for more groups than there will be."""
    trainer = {
        "wandb_group": "benchmark",
        "wandb_project": "benchmark",
        "batch_size": 2**20,
        "max_token_len": 2 * tokens + 4096,
        "checkpoint_dir": tempfile.mkdtemp(),
        "save_checkpoint_interval": 0,
        "starting_step": 0,
        "num_steps": 1,
    }
    async with aiohttp.ClientSession(url, raise_for_status=True) as session:
        for method, path, body in (
            ("POST", "/register", trainer),
            ("GET", "/batch", None),
        ):
            async with session.request(method, path, json=body):
                pass


def build(tokenizer: Path, inference: str, api: str, tokens: int) -> ReasoningGymEnv:
    config = ReasoningGymEnvConfig(
        tokenizer_name=str(tokenizer),
        include_tasks=["arithmetic"],
        group_size=GROUP_SIZE,
        max_token_length=2 * tokens + 4000,
        rollout_server_url=api,
        use_wandb=False,
        ensure_scores_are_not_same=False,
        dump_rollouts=True,
        dump_failed_rollouts=True,
        data_dumps_dir=tempfile.mkdtemp(),
        steps_per_eval=0,
        total_steps=1,
        wandb_name="benchmark",
    )
    server = APIServerConfig(
        server_type="vllm", model_name="long", base_url=f"{inference}/v1", api_key="x"
    )
    return ReasoningGymEnv(config, [server])


async def drive(env: ReasoningGymEnv, groups: int, in_flight: int) -> None:
    """Collect groups and send them, as the run's workers do."""
    left = iter(range(groups))

    async def worker() -> None:
        for _ in left:
            item = await env.get_next_item()
            await env.run.groups.work_on(item)

    await asyncio.gather(*(worker() for _ in range(in_flight)))


async def measure(options: argparse.Namespace) -> None:
    tokenizer = build_tokenizer(Path(tempfile.mkdtemp()))
    async with ApiServer() as api, long_server(tokenizer, options.tokens) as inference:
        await register_trainer(api.url, options.tokens)
        env = build(tokenizer, inference, api.url, options.tokens)
        try:
            await env.setup()
            await env.run.register()
            await drive(env, 4, 2)
            before, begin = memory_megabytes(), time.perf_counter()
            async with LoopMonitor() as monitor, ProcessorTime() as spent:
                await drive(env, options.groups, options.in_flight)
            seconds = time.perf_counter() - begin
            after = memory_megabytes()
        finally:
            await env.close()
    assert env.statistics.counts["groups/sent"] == options.groups + 4, (
        env.statistics.accounting()
    )
    print(
        f"{options.groups} groups of {GROUP_SIZE}, {options.tokens} tokens each with logprobs, "
        f"{options.in_flight} under way"
    )
    print(f"groups a second    {options.groups / seconds:.2f}")
    print(f"event loop         {monitor.report()}")
    print(f"processor          {spent.report(options.groups)}")
    print(f"memory before      {before}")
    print(f"memory after       {after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.disable(logging.INFO)
    sys.setswitchinterval(SWITCH_SECONDS)  # as `serve` does
    asyncio.run(
        serve(options.serve, options.tokens) if options.serve else measure(options)
    )


if __name__ == "__main__":
    main()
