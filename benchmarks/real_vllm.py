"""How busy `serve` keeps a real vLLM, beside a bare loop of the same prompts.

    python benchmarks/real_vllm.py --vllm .venv-real/bin/python --model .venv-real/model --rounds 3

vLLM runs on this machine's CPUs, with what `make test-real` installs. `serve` runs with the real
Atropos API and a stand-in trainer. In turn with it, a loop sends prompts that `serve` has sent, as
many at a time, and reads nothing of the replies. vLLM counts the tokens, and the completions that
it generates at a time. Measure on an idle machine: other work slows vLLM more than a client does.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from rounds import in_turn, show
from soak import start_serve

from reasoning_gym_environment.demo.trainer import ENDLESS, ApiServer, Trainer

START_VLLM = Path(__file__).parents[1] / "tests/real/serve_vllm.sh"
START_SECONDS = 400.0
GROUP_SIZE = 8
GROUPS_AT_ONCE = 4
"""Twice as many completions as vLLM is started to generate at a time, so that it never waits."""

MAX_LENGTH = 512
TEMPERATURE = 0.7
SERVE = "serve"
BARE = "a bare loop"


@contextmanager
def vllm(python: str, model: str) -> Iterator[str]:
    """Run vLLM while entered, and yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(START_VLLM), python, model, str(port)]
    log = Path(tempfile.mkdtemp(prefix="vllm-")) / "vllm.log"
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "--logprobs-mode", "processed_logprobs"],
            stdout=output,
            stderr=output,
        )
    try:
        asyncio.run(wait_for(url, server, log))
        yield url
    finally:
        server.terminate()
        server.wait()


async def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until vLLM answers; exit if it does not start."""
    end = time.monotonic() + START_SECONDS
    async with aiohttp.ClientSession() as session:
        while server.poll() is None and time.monotonic() < end:
            try:
                async with session.get(f"{url}/health", raise_for_status=True):
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(1.0)
    sys.exit(f"vLLM has not started: see {log}")


async def metric(session: aiohttp.ClientSession, url: str, name: str) -> float:
    """Return the sum of one of vLLM's metrics."""
    async with session.get(f"{url}/metrics", raise_for_status=True) as response:
        text = await response.text()
    values = re.findall(rf"^vllm:{name}\{{.*?\}} (\S+)", text, re.MULTILINE)
    return sum(map(float, values))


async def measure(
    url: str, has_group: asyncio.Event, seconds: float, ended: asyncio.Future[Any]
) -> dict[str, float]:
    """Return what vLLM does in these seconds, once the first group has come.

    Args:
        ended: is done when what is measured has ended, which is an error.
    """
    first = asyncio.ensure_future(has_group.wait())
    await asyncio.wait({first, ended}, return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        sys.exit(f"nothing was measured: {ended}")
    async with aiohttp.ClientSession() as session:
        tokens = await metric(session, url, "generation_tokens_total")
        began = time.monotonic()
        running = []
        while time.monotonic() < began + seconds:
            running.append(await metric(session, url, "num_requests_running"))
            await asyncio.sleep(0.5)
        tokens = await metric(session, url, "generation_tokens_total") - tokens
    return {
        "tokens/s": tokens / (time.monotonic() - began),
        "completions at a time": statistics.fmean(running),
    }


class PromptKeeper(Trainer):
    """A trainer that keeps the prompts of its groups."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.prompts: list[list[int]] = []
        self.has_group = asyncio.Event()

    def _train(self, batch: list[dict[str, Any]]) -> None:
        super()._train(batch)
        for group in batch:
            length = group["masks"][0].count(-100)
            self.prompts.append(group["tokens"][0][:length])
        self.has_group.set()


async def measure_serve(
    url: str, model: str, prompts: Path, seconds: float
) -> dict[str, float]:
    """Measure `serve`, and write the prompts that it has sent."""
    folder = prompts.parent
    async with ApiServer() as api:
        trainer = PromptKeeper(
            api.url,
            batch_size=GROUP_SIZE,
            max_token_len=2**17,
            num_steps=ENDLESS,
            checkpoint_dir=folder,
        )
        training = asyncio.create_task(trainer.run())
        serve = await start_serve(settings(api.url, url, model, folder), folder)
        try:
            ended = asyncio.ensure_future(serve.wait())
            numbers = await measure(url, trainer.has_group, seconds, ended)
        finally:
            if serve.returncode is None:
                serve.terminate()
            await serve.wait()
            training.cancel()
    prompts.write_text(json.dumps(trainer.prompts))
    return numbers


def settings(api_url: str, url: str, model: str, folder: Path) -> dict[str, Any]:
    """Return the configuration of `serve`, which JSON writes as YAML."""
    env = {
        "rollout_server_url": api_url,
        "tokenizer_name": model,
        "system_prompt": "direct",
        "group_size": GROUP_SIZE,
        "ensure_scores_are_not_same": False,
        "temperature": TEMPERATURE,
        "max_token_length": MAX_LENGTH,
        "max_num_workers": GROUPS_AT_ONCE,
        "max_batches_offpolicy": 2 * GROUPS_AT_ONCE,
        "include_tasks": "gcd,lcm",
        "num_eval_samples_per_task": 1,
        "steps_per_eval": 0,
        "total_steps": 10**6,
        "use_wandb": False,
        "data_dumps_dir": str(folder / "dumps"),
    }
    server = {"server_type": "vllm", "base_url": f"{url}/v1", "model_name": model}
    return {"env": env, "openai": server}


async def measure_loop(
    url: str, model: str, prompts: Path, seconds: float
) -> dict[str, float]:
    """Measure a loop that sends the prompts that `serve` has written."""
    endless = itertools.cycle(json.loads(prompts.read_text()))
    has_group = asyncio.Event()

    async def work(session: aiohttp.ClientSession) -> None:
        for prompt in endless:
            body = {
                "model": model,
                "prompt": prompt,
                "n": GROUP_SIZE,
                "max_tokens": MAX_LENGTH - len(prompt) - 1,
                "temperature": TEMPERATURE,
                "logprobs": 0,
                "return_token_ids": True,
            }
            async with session.post(f"{url}/v1/completions", json=body) as response:
                await response.read()
            has_group.set()

    async with aiohttp.ClientSession(raise_for_status=True) as session:
        workers = [asyncio.create_task(work(session)) for _ in range(GROUPS_AT_ONCE)]
        ended = asyncio.ensure_future(
            asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        )
        numbers = await measure(url, has_group, seconds, ended)
        for worker in workers:
            worker.cancel()
        await asyncio.wait({*workers, ended})
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vllm", required=True, help="the Python that has vLLM")
    parser.add_argument("--model", required=True, help="a folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of one measurement"
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, url, prompts = options.one
        measured = {SERVE: measure_serve, BARE: measure_loop}[name]
        arguments = (url, options.model, Path(prompts), options.seconds)
        print(json.dumps(asyncio.run(measured(*arguments))))
        return
    prompts = str(Path(tempfile.mkdtemp(prefix="real-vllm-")) / "prompts.json")
    own = [sys.executable, __file__, "--vllm", options.vllm, "--model", options.model]
    own += ["--seconds", str(options.seconds)]
    with vllm(options.vllm, options.model) as url:
        programs = {name: [*own, "--one", name, url, prompts] for name in (SERVE, BARE)}
        results = in_turn(programs, options.rounds)
    show(results)
    for name in results[BARE][0]:
        pairs = zip(results[SERVE], results[BARE], strict=True)
        shares = [f"{ours[name] / bare[name]:.3f}" for ours, bare in pairs]
        print(f"share of the bare loop's {name}: {', '.join(shares)}")


if __name__ == "__main__":
    main()
