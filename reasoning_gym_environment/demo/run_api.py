"""Atropos's own `run-api`, which also ends when its standard input closes.

The parent holds the other end, so the API server dies with it on every way out of it.
"""

from __future__ import annotations

import os
import sys
import threading

from atroposlib.cli import run_api


def _exit_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    run_api.main()
