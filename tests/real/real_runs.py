"""Commands of the environment against real servers: shared by the tests in this folder."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from reasoning_gym_environment.demo.trainer import ApiServer, Trainer

PYTHON = os.environ.get("REAL_PYTHON", "python")
MODEL = os.environ.get("REAL_MODEL", "model")
START_SECONDS = 400
MAX_LENGTH = 256


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def running(
    command: Sequence[str], log: Path, sign_of_life: str
) -> AsyncIterator[None]:
    """A server that answers at the URL `sign_of_life`, ended afterwards."""
    with log.open("wb") as said:
        server = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
    try:
        for _ in range(START_SECONDS):
            assert server.poll() is None, log.read_text()[-4000:]
            if await answers(sign_of_life):
                break
            await asyncio.sleep(1)
        yield
    finally:
        server.terminate()
        server.wait(timeout=60)


async def answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return bool(response.ok)
    except aiohttp.ClientError:
        return False


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "tokenizer_name": MODEL,
        "system_prompt": "direct",
        "include_tasks": "gcd",
        "task_processes": 1,
        "group_size": 4,
        "max_token_length": MAX_LENGTH,
        "temperature": 0.7,
        "max_num_workers": 2,
        "num_eval_samples_per_task": 2,
        "steps_per_eval": 0,
        "use_wandb": False,
        "ensure_scores_are_not_same": False,
        "data_dumps_dir": str(folder),
        **changes,
    }


def server_settings(url: str, kind: str, model: str = MODEL) -> dict[str, Any]:
    return {"server_type": kind, "base_url": f"{url}/v1", "model_name": model}


def options(
    url: str, kind: str, folder: Path, *, model: str = MODEL, **changes: Any
) -> list[str]:
    groups = {
        "env": settings(folder, **changes),
        "openai": server_settings(url, kind, model),
    }
    return [
        part
        for prefix, values in groups.items()
        for name, value in values.items()
        for part in (f"--{prefix}.{name}", str(value))
    ]


async def run_command(*arguments: str, status: int = 0, timeout: float = 300) -> str:
    """What the command says; fails where its exit status is another."""
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reasoning_gym_environment", *arguments),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await asyncio.wait_for(command.communicate(), timeout)
    finally:
        if command.returncode is None:
            command.kill()
    assert command.returncode == status, said.decode()[-4000:]
    return said.decode()


async def batches_of_serve(
    url: str, kind: str, folder: Path, *, batch_size: int, steps: int, **changes: Any
) -> list[list[dict[str, Any]]]:
    """The batches that `serve` feeds to a trainer until its last step."""
    batches: list[list[dict[str, Any]]] = []

    class Keeping(Trainer):
        def _train(self, batch: list[dict[str, Any]]) -> None:
            super()._train(batch)
            batches.append(batch)

    async with ApiServer() as api:
        trainer = Keeping(
            api.url,
            batch_size=batch_size,
            max_token_len=512,
            num_steps=steps,
            checkpoint_dir=folder,
        )
        training = asyncio.create_task(trainer.run())
        changes = {"rollout_server_url": api.url, "total_steps": steps, **changes}
        serving = asyncio.create_task(
            run_command("serve", *options(url, kind, folder, **changes))
        )
        await asyncio.wait(
            {training, serving}, timeout=300, return_when="FIRST_COMPLETED"
        )
        if serving.done():
            serving.result()
        await asyncio.wait_for(training, timeout=60)
        serving.cancel()
        await asyncio.wait({serving})
    return batches
