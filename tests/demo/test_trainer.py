import asyncio
import math
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reasoning_gym_environment.demo.trainer import (
    ApiServer,
    MalformedGroupError,
    Trainer,
    check_group,
)

MAX_TOKEN_LEN = 8

GROUP: dict[str, Any] = {
    "tokens": [[5, 6, 7], [5, 8]],
    "masks": [[-100, 6, 7], [-100, 8]],
    "scores": [1.0, 0.0],
    "inference_logprobs": [[1.0, -0.1, -0.2], [1.0, -0.3]],
}


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": []},
        {"scores": [1.0]},
        {"scores": [1.0, math.nan]},
        {"masks": [[-100, 6], [-100, 8]]},
        {"masks": [[-100, 6, 9], [-100, 8]]},
        {"inference_logprobs": [[1.0, -0.1, -0.2]]},
        {"inference_logprobs": [[1.0, -0.1], [1.0, -0.3]]},
        {
            "tokens": [[5] * 8, [5, 8]],
            "masks": [[5] * 8, [5, 8]],
            "inference_logprobs": None,
        },
    ],
)
def test_a_malformed_group_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedGroupError):
        check_group(GROUP | change, MAX_TOKEN_LEN)


def test_a_group_without_logprobs_is_well_formed() -> None:
    assert check_group(GROUP | {"inference_logprobs": None}, MAX_TOKEN_LEN) == 2


async def until_registered(session: aiohttp.ClientSession) -> None:
    while True:
        async with session.get("/info") as response:
            if (await response.json())["batch_size"] != -1:
                return
        await asyncio.sleep(0.05)


@pytest.mark.processes
async def test_the_trainer_pulls_from_the_real_api_server_which_ends(
    tmp_path: Path,
) -> None:
    async with ApiServer() as api:
        trainer = Trainer(
            api.url,
            batch_size=2,
            max_token_len=MAX_TOKEN_LEN,
            num_steps=3,
            checkpoint_dir=tmp_path,
        )
        training = asyncio.create_task(trainer.run())
        async with aiohttp.ClientSession(api.url, raise_for_status=True) as session:
            await until_registered(session)
            for _ in range(3):
                async with session.post("/scored_data", json=GROUP):
                    pass
        await asyncio.wait_for(training, timeout=30)
    assert (trainer.batches, trainer.groups, trainer.rows) == (3, 3, 6)
    with pytest.raises(aiohttp.ClientConnectionError):
        async with aiohttp.ClientSession() as session, session.get(api.url):
            pass


async def until_gone(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url):
                    await asyncio.sleep(0.05)
            except aiohttp.ClientConnectionError:
                return


@pytest.mark.processes
async def test_the_api_server_dies_with_its_parent(tmp_path: Path) -> None:
    """Also when the parent is killed where it stands."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio, os, signal\n"
        "from reasoning_gym_environment.demo.trainer import ApiServer\n"
        "async def main():\n"
        "    async with ApiServer() as api:\n"
        "        print(api.url, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await parent.communicate()
    await asyncio.wait_for(until_gone(output.decode().strip()), timeout=30)
