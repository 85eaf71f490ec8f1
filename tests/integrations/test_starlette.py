"""HTTP with the lowest starlette and fastapi that are allowed.

That starlette builds the path of a request's URL from any Host header.
"""

import os
import re
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from page_blocks import ROOT

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.service.app import ServiceSettings, create_app

pytestmark = [pytest.mark.integration, pytest.mark.processes]


def test_the_service_is_described_with_the_lowest_versions() -> None:
    lowest = re.findall(
        r'"(fastapi|starlette)>=(.+)"', (ROOT / "pyproject.toml").read_text()
    )
    assert [(name, version(name)) for name, _ in lowest] == lowest
    app = create_app(AsyncReasoningGym(processes=1), ServiceSettings())
    assert "/score" in app.openapi()["paths"]


def test_no_host_brings_a_reader_past_the_token(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "reasoning_gym_environment",
        "watch",
        tmp_path,
        "--port",
        "0",
    ]
    token = {"REASONING_GYM_WATCH_TOKEN": "a-token-of-24-characters"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | token
    ) as process:
        assert process.stdout is not None
        port = int(re.findall(r":(\d+)/", process.stdout.readline())[0])
        replies = {}
        for host in (
            "127.0.0.1",
            "127.0.0.1/healthz?",
            "[::1]/healthz#",
            "127.0.0.1:x",
        ):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(
                    f"GET /api/index HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
                )
                replies[host] = connection.recv(100).decode()
        process.terminate()
    assert {each.split()[1] for each in replies.values()} <= {"401", "403"}, replies
