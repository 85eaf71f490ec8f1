"""A process of its own that serves the page of a run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import FixableError

CLOSE_SECONDS = 10.0
"""How long the process may take to tell its pages the end, before it is killed."""


class WatchProcess:
    """A process that serves the page of a run; it ends with this process, however that ends.

    It has an interpreter of its own, so that the page takes no time from the run. What the folders
    hold already is left out.
    """

    def __init__(self, folders: Sequence[Path], port: int) -> None:
        try:
            socket.create_server(("127.0.0.1", port)).close()  # frees it again
        except OSError as error:
            raise FixableError(
                f"--watch {port}: cannot listen at this port ({os.strerror(error.errno or 0)}); "
                "give another one, or 0 for a free one"
            ) from error
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        program = [sys.executable, "-m", __package__.partition(".")[0], "watch"]
        options = ["--port", str(port), "--new", "--until-input-ends"]
        self._process = subprocess.Popen(
            [*program, *map(str, folders), *options],
            stdin=subprocess.PIPE,  # ends with this process
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C ends the run first
        )

    def url(self) -> str:
        """Wait until it serves, and return its address; FixableError if it can't start."""
        assert self._process.stdout is not None
        url = self._process.stdout.readline().strip()
        if not url:
            # Its own error is on the terminal already, since both share standard error.
            raise FixableError(
                "--watch: the page can't be served, for the reason above"
            )
        return url

    def close(self, report: Path | None = None) -> None:
        """End the process; its pages name the report. Idempotent."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already
            if report and not self._process.stdin.closed:
                self._process.stdin.write(str(report))
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        with self._process:  # closes its output
            pass
