"""The reward service in a process of its own, for frameworks whose calls block."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served_rewards(
    folder: Path, *more: str, open_files: int | None = None
) -> Iterator[str]:
    """Start `rewards` with streams in a folder; yield its address once it is ready.

    Args:
        open_files: its limit of them, which it can't raise.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "reasoning_gym_environment", "rewards"]
    options = [
        "--port",
        str(port),
        "--processes",
        "1",
        "--streams",
        str(folder / "streams"),
    ]
    if open_files is not None:
        limited = f'ulimit -n {open_files} && exec "$@"'
        command = ["bash", "-c", limited, "bash", *command]
    log = folder / "rewards.log"
    with (
        log.open("wb") as output,
        subprocess.Popen([*command, *options, *more], stderr=output) as service,
    ):
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}/health", service, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            service.terminate()


def _wait_until_ready(health: str, service: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        assert service.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(health):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(log.read_text())
