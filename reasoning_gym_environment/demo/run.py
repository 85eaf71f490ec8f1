"""The demo command."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence

from .report import render
from .settings import DemoSettings, parse_settings


def main(argv: Sequence[str]) -> int:
    """Run the demo; 0 only if groups were collected, sent and pulled by the trainer."""
    settings = parse_settings(argv)
    _log_to_file(settings)
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # PyTorch is not needed
    from ..report.page import write_report  # heavy, and not needed for --help
    from .session import run_demo

    report = asyncio.run(run_demo(settings))
    print(render(report))
    if report.dumps:
        write_report(report.dumps, settings.page)
        print(f"\nLook at the rollouts in a browser: {settings.page.resolve()}")
    return 0 if report.succeeded else 1


def _log_to_file(settings: DemoSettings) -> None:
    """Take the log off the screen; replaces what the command line has configured."""
    settings.data_dumps_dir.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=settings.log,
        filemode="w",
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
