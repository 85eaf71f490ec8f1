"""The command `openenv` in a process of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread


@contextmanager
def serving(*options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server process on a free port; yields its address."""
    command = [
        sys.executable,
        "-m",
        "reasoning_gym_environment",
        "openenv",
        "--port",
        "0",
    ]
    small = ["--env.task_processes", "1"]
    with subprocess.Popen(
        [*command, *small, *options], stderr=subprocess.PIPE, text=True
    ) as it:
        try:
            assert it.stderr is not None
            listening = (re.search(r"Listening on (\S+)", line) for line in it.stderr)
            url = next(found for found in listening if found)[1]
            # A full pipe would block it.
            Thread(target=it.stderr.read, daemon=True).start()
            yield url, it
        finally:
            it.terminate()
