"""The trainer of `docs/first-model.md`, with a tiny model, the real API and no vLLM."""

import asyncio
import math
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from integration_programs import run
from needs_torch import NEEDS_TORCH
from scripted_server import serving

from reasoning_gym_environment.demo.server import build_tokenizer
from reasoning_gym_environment.demo.trainer import ApiServer

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "train_a_language_model" / "trainer.py"
VOCABULARY = 1024
EACH = -math.log(VOCABULARY)
"""About the logprob that random weights give to any token."""

GROUP = {
    "tokens": [[5, 6, 7, 8], [5, 6, 9]],
    "masks": [[-100, -100, 7, 8], [-100, -100, 9]],
    "scores": [1.0, -1.0],
    "inference_logprobs": [[1.0, 1.0, EACH, EACH], [1.0, 1.0, EACH]],
}

pytestmark = NEEDS_TORCH


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = build_tokenizer(tmp_path_factory.mktemp("model"))
    size = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=VOCABULARY, num_hidden_layers=3, **size)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


class WeightServer:
    """What vLLM answers where weights are handed on.

    Attributes:
        calls: path and body of each.
        seen: the sum of the trained layers' and of the other weights at each reload.
    """

    def __init__(self, served: Path) -> None:
        self.served = served
        self.calls: list[tuple[str, Any]] = []
        self.seen: list[tuple[float, float]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.calls.append((request.path, await request.json()))
        if request.path == "/collective_rpc":
            self.seen.append(weights(self.served))
        return web.Response()


def weights(folder: Path) -> tuple[float, float]:
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"torch.bfloat16"}
    trained = {name for name in tensors if name.startswith("model.layers.2.")}
    sums = {
        name: tensor.double().abs().sum().item() for name, tensor in tensors.items()
    }
    return sum(sums[name] for name in trained), sum(
        sums[n] for n in sums.keys() - trained
    )


async def train(model: Path, folder: Path, steps: int, *, groups: int) -> WeightServer:
    """Run the trainer up to that step, with so many groups to train on."""
    server = WeightServer(folder / "served")
    async with (
        ApiServer() as api,
        serving([web.post("/{path:.*}", server.answer)]) as url,
    ):
        sizes = {
            "batch-size": 2,
            "gradient-accumulation-steps": 2,
            "seq-len": 64,
            "layers": 1,
        }
        options = {
            **sizes,
            "model": model,
            "device": "cpu",
            "lr": 0.01,
            "training-steps": steps,
            "checkpoint-interval": 1,
            "save-path": folder,
            "vllm-port": url.rpartition(":")[2],
            "atropos-url": api.url,
        }
        command = [
            str(PROGRAM),
            *(f"--{name}={value}" for name, value in options.items()),
        ]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        running = asyncio.create_task(
            run(sys.executable, *command, cwd=folder.parent, env=env)
        )
        async with aiohttp.ClientSession(api.url, raise_for_status=True) as session:
            await until_registered(session, running)
            for _ in range(groups):
                await session.post("/scored_data", json=GROUP)
            said = await asyncio.wait_for(running, timeout=120)
            async with session.get("/info") as response:
                assert (await response.json())["batch_size"] == 4
    assert said.count("Grad norm: 0.0000") == 0
    return server


async def until_registered(
    session: aiohttp.ClientSession, running: asyncio.Task[str]
) -> None:
    while not running.done():
        async with session.get("/info") as response:
            if (await response.json())["batch_size"] != -1:
                return
        await asyncio.sleep(0.1)
    await running


async def test_weights_reach_the_server_after_each_step_and_a_second_run_goes_on(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "trained"
    first = await train(model, folder, 2, groups=4)
    begun = [
        ("/collective_rpc", {"method": "reload_weights"}),
        ("/reset_prefix_cache", {}),
    ]
    assert first.calls == begun * 3
    (at_0, frozen), (at_1, _), (at_2, _) = first.seen
    assert len({at_0, at_1, at_2}) == 3
    second = await train(model, folder, 3, groups=2)
    assert second.seen[0][0] == at_2
    assert len(second.seen) == 2
    assert {other for _, other in first.seen + second.seen} == {frozen}
