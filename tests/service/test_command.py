"""The `rewards` command: token, options, contained functions, warning, and draining."""

import asyncio
import json
import os
import re
import resource
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import reasoning_gym
from page_blocks import ROOT
from process_tree import descendants, survivors

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.cli import main
from reasoning_gym_environment.commands.rewards import build_parser, read_token
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.service.app import ServiceSettings, serve
from reasoning_gym_environment.service.server import raise_file_limit

RECIPE = {"task": "simple_integration", "seed": 4}
TOKEN = "a-token-of-24-characters"


async def until(process: Process, pattern: str) -> str:
    """Read its log up to a line that matches, and give the match's last group."""
    assert process.stderr is not None
    while line := (await process.stderr.readline()).decode():
        if match := re.search(pattern, line):
            return match[match.lastindex or 0]
    raise AssertionError(f"the log ended without {pattern}")


@asynccontextmanager
async def command(
    *options: str, token: str | None = TOKEN, open_files: int = 0, folder: Path = ROOT
) -> AsyncIterator[Process]:
    def limit_files() -> None:
        if open_files:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))

    tokens = {"REASONING_GYM_REWARDS_TOKEN": token} if token else {}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reasoning_gym_environment", "rewards"),
        *("--port", "0", "--processes", "1", *options),
        stderr=PIPE,
        preexec_fn=limit_files,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **tokens},
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def queued(session: aiohttp.ClientSession, url: str, completions: int) -> None:
    """Wait until so many completions are pending."""
    metrics = ""
    while f"reasoning_gym_queued_answers {completions}" not in metrics:
        async with session.get(f"{url}/metrics") as response:
            metrics = await response.text()


@pytest.mark.processes
async def test_contained_functions_are_called_and_sigterm_drains_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    (tmp_path / "my_rewards.py").write_text(
        "def verify(text, data):\n    return text == data\n"
    )
    options = (
        "--streams",
        f"{tmp_path}/streams",
        "--contain",
        "mine=my_rewards:verify",
    )
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        command(*options, folder=tmp_path) as process,
        aiohttp.ClientSession(headers=headers) as session,
    ):
        url = await until(process, r"Listening on (http\S+)")
        async with session.get(f"{url}/health") as response:
            assert response.status == 503
            starting = {"status": "starting", "sandbox_gaps": [], "modules": {}}
            assert await response.json() == starting
        await until(process, "Ready")
        async with session.get(f"{url}/health") as response:
            assert response.status == 200
        body = {"completions": ["4", "5"], "data": "4"}
        async with session.post(f"{url}/contain/mine", json=body) as response:
            scores = (await response.json())["scores"]
        assert [score["status"] for score in scores] == ["solved", "wrong"]
        body = {"stream": "s", "options": {"tasks": ["gcd"], "sampling": "signal"}}
        async with session.post(f"{url}/problems", json=body) as response:
            [handed_out] = (await response.json())["problems"]
        workers = descendants(process.pid)
        body = {
            "recipe": RECIPE,
            "completions": [f"<answer>x**{n}</answer>" for n in range(12)],
        }
        asked = asyncio.create_task(session.post(f"{url}/score", json=body))
        await queued(session, url, 12)
        process.send_signal(signal.SIGTERM)
        await until(process, "Draining in-flight requests")
        response = await asked
        assert response.status == 200
        assert len((await response.json())["scores"]) == 12
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"{url}/health")
        assert await asyncio.wait_for(process.wait(), 20) == 0
    assert await survivors(workers) == set()
    kept = json.loads((tmp_path / "streams" / "s.json").read_text())
    assert kept["state"]["ahead"][0] == handed_out["recipe"]


@pytest.mark.processes
async def test_answers_are_scored_where_the_answer_format_has_them() -> None:
    entry: Any = reasoning_gym.create_dataset("gcd", seed=4, size=1)[0]
    box, tags = rf"\boxed{{{entry['answer']}}}", f"<answer>{entry['answer']}</answer>"
    async with (
        command("--answer-format", "boxed", token=None) as process,
        aiohttp.ClientSession() as session,
    ):
        url = await until(process, r"Listening on (http\S+)")
        await until(process, "Ready")
        for target in ({"recipe": {"task": "gcd", "seed": 4}}, {"entry": entry}):
            body = {**target, "completions": [box, tags, f"{box} {tags}"]}
            async with session.post(f"{url}/score", json=body) as response:
                scores = (await response.json())["scores"]
            statuses = [score["status"] for score in scores]
            assert statuses == ["solved", "no_answer", "solved"]


@pytest.mark.nightly
@pytest.mark.processes
async def test_sigterm_saves_streams_first_and_gives_up_what_hangs(
    tmp_path: Path,
) -> None:
    """On loopback, which is the default, nobody needs a token."""
    file = tmp_path / "s.json"
    async with (
        command("--streams", str(tmp_path), "--drain", "1", token=None) as process,
        aiohttp.ClientSession() as session,
    ):
        url = await until(process, r"Listening on (http://127\.0\.0\.1:\d+)")
        await until(process, "Ready")
        async with session.post(
            f"{url}/problems", json={"stream": "s", "options": {}}
        ) as response:
            assert response.status == 200
        answers = [f"<answer>A+99999999999{n}</answer>" for n in range(4)]
        body = {"recipe": {"task": "rush_hour", "seed": 4}, "completions": answers}
        asked = asyncio.create_task(session.post(f"{url}/score", json=body))
        await queued(session, url, 4)
        assert not file.exists()
        process.send_signal(signal.SIGTERM)
        while not file.exists():
            await asyncio.sleep(0.02)
        assert not asked.done(), "states are saved before requests are finished"
        assert (await asked).status == 503
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert process.stderr is not None
        assert b"Selected " not in await process.stderr.read(), "a line per problem"


@pytest.mark.processes
async def test_a_function_that_cannot_be_imported_stops_the_start() -> None:
    async with command("--contain", "mine=no_rewards:verify") as process:
        await until(
            process,
            "function: there is no module no_rewards: install it, or write its path",
        )
        assert await process.wait() == 2


async def test_a_public_address_without_a_token_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = ServiceSettings(host="192.0.2.1", port=8080)
    with pytest.raises(FixableError, match="cannot listen"):
        await serve(AsyncReasoningGym(), settings)
    assert (
        "The service is unauthenticated and listens on 192.0.2.1: set a token"
        in caplog.text
    )


def test_two_functions_of_one_name_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    twice = ["--contain", "a=operator:eq", "--contain", "a=operator:ne"]
    assert main(["rewards", *twice, "--host", "192.0.2.1"]) == 2
    assert "--contain: every NAME must be another, got a, a" in capsys.readouterr().err


def test_an_unusable_address_is_an_error(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["rewards", "--host", "192.0.2.1", "--port", "8080"]) == 2
    said = capsys.readouterr().err
    assert "error: --host 192.0.2.1 --port 8080: cannot listen (" in said


def test_a_token_is_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REASONING_GYM_REWARDS_TOKEN", raising=False)
    place = "REASONING_GYM_REWARDS_TOKEN", "localhost"
    assert read_token(None, *place) is None
    monkeypatch.setenv("REASONING_GYM_REWARDS_TOKEN", TOKEN)
    assert read_token(None, *place) == TOKEN
    file = tmp_path / "token"
    file.write_text(f"{TOKEN[::-1]}\n")
    assert read_token(file, *place) == TOKEN[::-1]


@pytest.mark.parametrize("text", ["", "short\n", f"{TOKEN}\nshort\n"])
def test_an_invalid_token_is_rejected(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(
        FixableError, match=r"the token must have at least 16 characters, got \d"
    ):
        read_token(file, "", "")
    with pytest.raises(FixableError, match="nowhere: cannot read it"):
        read_token(tmp_path / "nowhere", "", "")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--port=70000", "--port must be an integer from 0 to 65535, got '70000'"),
        ("--queue=9", "--queue must be an integer from 256 to 1000000, got '9'"),
        ("--max-body=0", "--max-body must be an integer from 1 to 1024, got '0'"),
        ("--processes=0", "--processes must be an integer from 1 to 1024, got '0'"),
        ("--drain=-1", "--drain must be an integer from 0 to 3600, got '-1'"),
    ],
)
def test_options_out_of_range_are_rejected(option: str, says: str) -> None:
    with pytest.raises(FixableError) as raised:
        build_parser().parse([option])
    assert says in str(raised.value)


@pytest.mark.processes
async def test_a_public_address_has_a_token_and_idle_connections_keep_health() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_file_limit()  # this process needs as many connections
    try:
        async with (
            command("--host", "0.0.0.0", token=None, open_files=1024) as process,
            aiohttp.ClientSession() as session,
            AsyncExitStack() as idle,
        ):
            said = r"Others reach 0\.0\.0\.0, and no token is set: clients need the new token "
            token = await until(process, said + r"(\S{16,})")
            url = (await until(process, r"Listening on (http\S+)")).replace(
                "0.0.0.0", "127.0.0.1"
            )
            for address, status in (
                (url, 401),
                (url.replace("//", f"//token:{token}@"), 200),
            ):
                async with session.get(f"{address}/metrics") as response:
                    assert response.status == status
            await until(process, "Ready")
            for sent in (b"", b"POST /score HTTP/1.1\r\nHost"):
                for _ in range(550):
                    place = "127.0.0.1", int(url.rpartition(":")[2])
                    _, writer = await asyncio.open_connection(*place)
                    idle.callback(writer.close)
                    writer.write(sent)
            async with (
                aiohttp.ClientSession(url) as another,
                another.get("/health") as response,
            ):
                assert response.status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
