"""The demo command."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from .report import render
from .settings import parse_settings


def main(argv: Sequence[str]) -> int:
    """Run the demo; 0 only if groups were collected, sent and pulled by the trainer."""
    settings = parse_settings(argv)
    from .session import run_demo  # heavy, and not needed for --help

    report = asyncio.run(run_demo(settings))
    sys.stdout.write(f"{render(report)}\n")
    return 0 if report.succeeded else 1
