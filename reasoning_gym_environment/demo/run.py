"""The demo command, and what one can choose about it. Light: `--help` needs nothing else."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..util.files import require_place

SERVER_TYPES = ("openai", "vllm", "sglang", "trl")


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """What one can choose about the demo.

    Attributes:
        seconds: of serving, counted from the first group.
        server_type: how the policy is spoken to.
    """

    seconds: float = 30.0
    server_type: Literal["openai", "vllm", "sglang", "trl"] = "openai"
    group_size: int = 8
    data_dumps_dir: Path = Path("data_dumps")
    seed: int = 0

    @property
    def log(self) -> Path:
        """The file that takes the log, so that the screen stays readable."""
        return self.data_dumps_dir / "demo.log"

    @property
    def page(self) -> Path:
        """The report that the demo ends with."""
        return self.data_dumps_dir / "demo-report.html"


def parse_settings(argv: Sequence[str]) -> DemoSettings:
    """Raises SystemExit on `--help` and on a bad option, after saying what is wrong."""
    parser = argparse.ArgumentParser(
        prog="reasoning-gym-environment demo",
        description="Run the real environment between a simulated policy and a small trainer.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    defaults = DemoSettings()
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="serve for so long")
    parser.add_argument(
        "--server-type",
        choices=SERVER_TYPES,
        default=defaults.server_type,
        help="how to speak to the policy",
    )
    parser.add_argument(
        "--group-size", type=int, default=defaults.group_size, help="rollouts of one problem"
    )
    parser.add_argument(
        "--data-dumps-dir", type=Path, default=defaults.data_dumps_dir, help="where dumps go"
    )
    parser.add_argument("--seed", type=int, default=defaults.seed, help="of problems and policy")
    settings = DemoSettings(**vars(parser.parse_args(argv)))
    if settings.group_size < 2:
        parser.error(f"--group-size is {settings.group_size}; one rollout can't be compared")
    if settings.seconds <= 0:
        parser.error(f"--seconds is {settings.seconds}; it must be above 0")
    return settings


def main(argv: Sequence[str]) -> int:
    """Run the demo; 0 only if groups were collected, sent and pulled by the trainer."""
    settings = parse_settings(argv)
    require_place(settings.data_dumps_dir, "--data-dumps-dir")
    _log_to_file(settings)
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # PyTorch is not needed
    from ..report.page import write_report  # heavy, and not needed for --help
    from .report import render
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
