"""`watch`, and `--watch` of other commands, as processes of their own."""

import asyncio
import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from json_values import mutated
from process_tree import descendants, in_linux, survivors
from report_files import row

from reasoning_gym_environment.cli import main
from reasoning_gym_environment.storage.run_record import record_path

DUMP = "reasoning_gym_environment_rollouts_r_0000.jsonl"
TOKEN = "a-token-of-24-characters"


@pytest.fixture(autouse=True)
def switch_interval() -> Iterator[None]:
    """Restore what `watch` sets in its process, which is this one where a test calls it."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@asynccontextmanager
async def command(*arguments: str, token: str = "") -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reasoning_gym_environment", *arguments),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, **({"REASONING_GYM_WATCH_TOKEN": token} if token else {})},
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def first_line(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()


async def get(url: str) -> Any:
    def fetch() -> Any:
        try:
            with urllib.request.urlopen(url) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            error.close()
            raise

    return await asyncio.to_thread(fetch)


async def index(url: str, groups: int) -> Any:
    while len((batch := await get(f"{url}api/index"))["groups"]["id"]) < groups:
        await asyncio.sleep(0.1)
    return batch


@pytest.mark.processes
async def test_it_follows_a_folder_until_a_signal(tmp_path: Path) -> None:
    async with command("watch", str(tmp_path), "--port", "0") as process:
        url = await first_line(process)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        assert (await first_line(process)).startswith("From another machine: ssh -L ")
        (tmp_path / DUMP).write_text(json.dumps(row([1.0, 0.0])) + "\n")
        batch = await index(url, 1)
        (run,) = batch["runs"]
        assert (run["id"], batch["rollouts"]["solved"]) == ("r", [1, 0])
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read())
        assert page.startswith(b"<!doctype html>")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
        assert process.stderr is not None
        assert await process.stderr.read() == b""


MUTATED = 20_000
"""Rows: 400 batches of 50, each half of training and half of an evaluation."""


@pytest.mark.processes
@pytest.mark.nightly
async def test_mutated_rows_end_no_page_which_names_how_many_it_leaves_out(
    tmp_path: Path,
) -> None:
    random = Random(0)
    training = row([1.0, 0.0], level=1)
    at_default = row([0.0, None])
    evaluation = {**row([1.0, 0.0], number=1, evaluation=True), "difficulty": 0.5}
    own_record = {"run": "r", "started": training["time"], "updated": training["time"]}
    samples = tmp_path / "evaluation" / "samples.jsonl"
    samples.parent.mkdir()
    async with command("watch", str(tmp_path), "--port", "0") as process:
        url = await first_line(process)
        cursor = ""
        shown = 0
        for batch_number in range(MUTATED // 50):
            for path, bases in (
                (tmp_path / DUMP, (training, at_default)),
                (samples, (evaluation,)),
            ):
                rows = [mutated(random.choice(bases), random) for _ in range(25)]
                with path.open("a") as file:
                    file.writelines(json.dumps(each) + "\n" for each in rows)
            record_path(tmp_path, "r").write_text(
                json.dumps(mutated(own_record, random))
            )
            if batch_number % 20 == 0:
                batch = await get(f"{url}api/index?since={cursor}")
                cursor = batch["cursor"]
                shown += len(batch["groups"]["id"])
        for path, last in ((tmp_path / DUMP, training), (samples, evaluation)):
            with path.open("a") as file:
                file.write(json.dumps({**last, "oracle": "the last one"}) + "\n")
        last_ones = 0
        while last_ones < 2:
            batch = await get(f"{url}api/index?since={cursor}")
            cursor = batch["cursor"]
            shown += len(batch["groups"]["id"])
            last_ones += batch["groups"]["oracle"].count("the last one")
            await asyncio.sleep(0.1)
        assert process.returncode is None
    said = [line["text"] for run in batch["runs"] for line in run["health"]]
    skipped = sum(
        int(count) for text in said for count in re.findall(r"Skipped (\d+) torn", text)
    )
    assert skipped > MUTATED / 10
    assert shown + skipped == MUTATED + 2


@pytest.mark.processes
async def test_an_address_that_others_reach_has_a_token(tmp_path: Path) -> None:
    for token in ("", TOKEN):
        options = ("--host", "0.0.0.0", "--port", "0")
        async with command("watch", str(tmp_path), *options, token=token) as process:
            url = await first_line(process)
            port, given = re.findall(r":(\d+)/\?token=(.{16,})$", url)[0]
            assert given == (token or given)
            with pytest.raises(urllib.error.HTTPError, match="401"):
                await get(f"http://127.0.0.1:{port}/api/index")
            # It redirects to a page that needs the cookie.
            with suppress(urllib.error.HTTPError):
                await get(f"http://127.0.0.1:{port}/?token={given}")
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            assert given.encode() not in await process.stderr.read()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere"], "nowhere does not exist"),
        (
            [".", "--host", "nowhere.invalid"],
            "--host nowhere.invalid --port 8090: cannot listen",
        ),
        ([".", "--token-file", "nowhere"], "--token-file nowhere: cannot read it"),
    ],
)
def test_what_cannot_be_served_is_told(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_ports_are_checked(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["watch", ".", "--port", port], ["serve", "--watch", port]):
        assert main(command) == 2
        said = f"{command[-2]} must be an integer from 0 to 65535, got '{port}'"
        assert said in capsys.readouterr().err


def test_a_run_without_dumps_has_nothing_to_show(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--env.dump_all_rollouts", "false", "--env.use_wandb", "false"]
    assert main(["serve", "--watch", "0", *options]) == 2
    assert "set --env.dump_all_rollouts true" in capsys.readouterr().err


@pytest.mark.nightly
@in_linux
@pytest.mark.processes
async def test_a_runs_page_ends_with_its_run_even_if_that_is_killed(
    tmp_path: Path, tokenizer_folder: str
) -> None:
    (tmp_path / DUMP).write_text(json.dumps(row([1.0])) + "\n")
    os.utime(tmp_path / DUMP, (1, 1))
    options = {
        "--env.tokenizer_name": tokenizer_folder,
        "--env.include_tasks": "gcd",
        "--env.task_processes": "1",
        "--env.use_wandb": "false",
        "--env.data_dumps_dir": str(tmp_path),
        "--openai.base_url": "http://127.0.0.1:9/v1",
        "--watch": "0",
    }
    async with command(
        "process", *(x for pair in options.items() for x in pair)
    ) as process:
        assert process.stderr is not None
        said = ""
        while not (found := re.search(r"Watch the run at (\S+)", said)):
            said = (await process.stderr.readline()).decode()
            assert said, "the run ended"
        batch = await get(f"{found[1]}api/index")
        assert batch["groups"]["id"] == [], "groups of earlier runs are left out"
        started = descendants(process.pid)
        process.kill()
        await process.communicate()
    assert started
    assert await survivors(started) == set()
