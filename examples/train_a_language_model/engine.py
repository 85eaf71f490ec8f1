"""A real vLLM on this CPU, which serves the weights under training."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import requests

SETTINGS = {
    "VLLM_SERVER_DEV_MODE": "1",  # brings /collective_rpc and /reset_prefix_cache
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    # Others may have the core that it would choose.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
START_SECONDS = 600
RELOAD_SECONDS = 300


class Engine:
    """A running vLLM server.

    Attributes:
        url: without a trailing slash.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, port: int, log: Path
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._process = process
        self._log = log

    def require_running(self) -> None:
        """Raise RuntimeError if the process has ended."""
        if self._process.returncode is not None:
            raise RuntimeError(
                f"vLLM ended with status {self._process.returncode}: see {self._log}"
            )

    async def wait(self) -> None:
        """Wait until the server answers; raise RuntimeError if it doesn't."""
        async with aiohttp.ClientSession(self.url) as session:
            for _ in range(START_SECONDS):
                self.require_running()
                try:
                    async with session.get("/health", raise_for_status=True):
                        return
                except aiohttp.ClientError:
                    await asyncio.sleep(1)
        raise RuntimeError(f"vLLM is not up after {START_SECONDS} s: see {self._log}")


def reload(url: str) -> None:
    """Make vLLM reload its folder and drop the cache of the old weights.

    Raises:
        requests.HTTPError: the server refuses.
    """
    calls = {"/collective_rpc": {"method": "reload_weights"}, "/reset_prefix_cache": {}}
    for path, body in calls.items():
        requests.post(
            f"{url}{path}", json=body, timeout=RELOAD_SECONDS
        ).raise_for_status()


@asynccontextmanager
async def serving(
    python: str, model: Path, log: Path, *, dtype: str, context: int, threads: int
) -> AsyncIterator[Engine]:
    """Serve a model's folder during the block; raise RuntimeError if vLLM doesn't start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *command(python, model, port, dtype=dtype, context=context),
            env={**os.environ, **SETTINGS, "OMP_NUM_THREADS": str(threads)},
            stdout=out,
            stderr=out,
        )
    engine = Engine(process, port, log)
    try:
        await engine.wait()
        yield engine
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def command(
    python: str, model: Path, port: int, *, dtype: str, context: int
) -> list[str]:
    """Return the command that serves a model's folder under the loop's model name."""
    options = {
        "model": model,
        "served-model-name": "learner",
        "host": "127.0.0.1",
        "port": port,
        "dtype": dtype,
        "max-model-len": context,
        "max-num-seqs": 32,
    }
    # The console script looks for metadata of a package named `vllm`; this one is `vllm-cpu`.
    server = [python, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    return [*server, *(f"--{name}={value}" for name, value in options.items())]
