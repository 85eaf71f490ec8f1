"""A line that says how it goes."""

from __future__ import annotations

import time
from typing import TextIO

_PLAIN_SECONDS = 3.0


class Progress:
    """Rewrites one line on a terminal; elsewhere it prints a line every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._next = 0.0

    def show(self, line: str) -> None:
        now = time.monotonic()
        if self._terminal:
            self._stream.write(f"\r{line}\x1b[K")
        elif now >= self._next:
            self._stream.write(f"{line}\n")
            self._next = now + _PLAIN_SECONDS
        self._stream.flush()

    def close(self) -> None:
        """End the line on a terminal."""
        if self._terminal:
            self._stream.write("\n")
