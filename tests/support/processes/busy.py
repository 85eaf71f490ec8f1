"""Processes that keep all processors busy."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run processes that want a processor all the time.

    Each has a session of its own, as a user's other programs do: the kernel may share the
    processors among sessions.
    """
    spinning = [
        subprocess.Popen(
            [sys.executable, "-c", "while True: pass"], start_new_session=True
        )
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def processors() -> int:
    """Return how many processors this process may use."""
    return (
        len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    )
