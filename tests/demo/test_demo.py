"""The demo command, on real parts."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from demo_runs import run_demo
from process_tree import PROC, descendants, in_linux

pytestmark = pytest.mark.processes


@pytest.mark.nightly
@pytest.mark.parametrize("server_type", ["openai", "vllm"])
def test_groups_make_the_whole_way(
    server_type: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if server_type == "openai":  # the default
        folder = request.getfixturevalue("demo_run")
    else:
        folder = tmp_path
        run_demo(folder, "--server-type", server_type, "--no-watch")
    output = (folder / "demo.out").read_text()
    assert "groups pulled" in output
    is_watched = output.startswith("Watch the run in a browser: http://127.0.0.1:")
    assert is_watched == (server_type == "openai")
    files = folder.glob("*.jsonl")
    dumped = [
        json.loads(line) for file in files for line in file.read_text().splitlines()
    ]
    assert dumped
    assert all(len(group["rollouts"]) == 8 for group in dumped)
    statuses = [rollout["status"] for group in dumped for rollout in group["rollouts"]]
    [solved] = [
        line.split()[1] for line in output.splitlines() if line.startswith("all ")
    ]
    assert solved == f"{statuses.count('solved') / len(statuses):.1%}"
    assert output.split()[-1] == str(folder / "demo-report.html")
    assert 'class="chunk"' in (folder / "demo-report.html").read_text()


@pytest.mark.nightly
@in_linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_signal_leaves_no_process_behind(
    number: signal.Signals, tmp_path: Path
) -> None:
    demo = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "reasoning_gym_environment",
            "demo",
            "--seconds",
            "600",
        ),
        *("--no-watch", "--data-dumps-dir", str(tmp_path)),
        stdout=PIPE,
        stderr=PIPE,
    )
    assert demo.stdout is not None
    assert demo.stderr is not None
    line = b" "
    while line and b" sent" not in line:
        line = await demo.stdout.readline()
    assert line, await demo.stderr.read()
    started = descendants(demo.pid)
    demo.send_signal(number)
    await asyncio.wait_for(demo.communicate(), timeout=60)
    assert started
    await asyncio.wait_for(until_gone(started), timeout=30)


async def until_gone(pids: set[int]) -> None:
    """Not even zombies are left, which whoever inherits them has to reap."""
    while any((PROC / str(pid)).exists() for pid in pids):
        await asyncio.sleep(0.1)
