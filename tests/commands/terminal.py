"""Programs in a real terminal of some columns."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Sequence
from contextlib import suppress


def in_terminal(arguments: Sequence[str], *, columns: int, status: int = 0) -> str:
    """All that a program writes to its terminal until it ends, which it must with this status."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "NO_COLOR")
    }
    process = subprocess.Popen(
        arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    written = b""
    with suppress(OSError):  # Linux raises EIO once nobody has the other end
        while chunk := os.read(ours, 4096):
            written += chunk
    os.close(ours)
    assert process.wait() == status, written.decode()
    return written.decode()


def lines(written: str) -> list[str]:
    """The lines, without colors; a line that was rewritten counts each time."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", written))
