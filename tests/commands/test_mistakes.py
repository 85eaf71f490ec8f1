"""What users get wrong and what they are told: the table in `mistakes.json`, from real runs."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web
from scripted_server import serving

TABLE = Path(__file__).with_name("mistakes.json")
REPLIES: dict[str, tuple[int, str]] = {
    "key": (
        401,
        '{"error": {"message": "Incorrect API key provided: sk-***.", "code": 401}}',
    ),
    "model": (
        404,
        '{"object": "error", "message": "The model `good` does not exist."}',
    ),
    "quota": (
        429,
        '{"error": {"message": "You exceeded your current quota, please check your plan and '
        'billing details.", "type": "insufficient_quota"}}',
    ),
    "context": (
        400,
        '{"error": {"message": "This model\'s maximum context length is 4096 tokens."}}',
    ),
    "page": (200, "<!doctype html><title>A router's log-in</title>"),
    "text": (200, '{"choices": [{"text": "ok", "message": {"content": "ok"}}]}'),
    "v1": (404, '{"detail": "Not Found"}'),
}
"""Status and body of every reply, by the first part of the path."""


async def answer(request: web.Request) -> web.Response:
    """Answer all requests below a path alike."""
    status, body = REPLIES.get(request.path.split("/")[1], REPLIES["v1"])
    return web.Response(status=status, text=body)


@pytest.mark.nightly
@pytest.mark.processes
async def test_a_mistake_gets_one_sentence_with_the_way_out(tmp_path: Path) -> None:
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("WANDB_")
    }
    program = [
        sys.executable,
        str(TABLE.with_name("mistake_runs.py")),
        str(TABLE),
        str(tmp_path),
    ]
    async with serving([web.route("*", "/{path:.*}", answer)]) as url:
        done = await asyncio.to_thread(
            subprocess.run,
            [*program, url],
            env={**known, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=400,
        )
    assert done.returncode == 0, done.stderr
    expected = {
        name: case["said"] for name, case in json.loads(TABLE.read_text()).items()
    }
    assert json.loads(done.stdout) == expected
