"""`report`: an HTML page from dumps and evaluation results."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from ..report.page import write_report


def main(arguments: Sequence[str]) -> int:
    """Write the page; raises FixableError on unusable files."""
    parser = ArgumentParser(
        prog="reasoning-gym-environment report",
        description="Make one self-contained HTML page from dumps and evaluation results.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        help="dumps, evaluation samples (.jsonl), metrics.json, folders with any of them",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("report.html"),
        help="file to write (default: report.html)",
    )
    options = parser.parse_args(arguments)
    write_report(options.files, options.output)
    print(f"{options.output.resolve()} ({options.output.stat().st_size / 1e6:.1f} MB)")
    return 0
