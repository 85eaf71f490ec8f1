"""Signals end a run in order; one that `nohup` has ignored does not."""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

PROGRAM = """
import asyncio
from reasoning_gym_environment.util.concurrency import graceful_shutdown
async def close():
    print("closed", flush=True)
async def main():
    async with graceful_shutdown(close):
        print("runs", flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


def ended_by(number: signal.Signals, *before: str) -> tuple[int, str]:
    """The exit status of a program that gets a signal while it runs, and what it said then."""
    command = [*before, sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "runs\n"
        program.send_signal(number)
        try:
            program.wait(timeout=5 if before else 60)
        except subprocess.TimeoutExpired:
            program.terminate()
        return program.wait(timeout=60), program.stdout.read()


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)],
)
def test_a_signal_closes_what_is_open_with_its_status(
    number: signal.Signals, status: int
) -> None:
    assert ended_by(number) == (status, "closed\n")


def test_a_terminal_that_is_gone_does_not_end_what_nohup_started() -> None:
    assert ended_by(signal.SIGHUP, "nohup") == (143, "closed\n")
