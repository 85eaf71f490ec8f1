"""`report`: an HTML page from dumps and evaluation results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..report.page import write_report
from ..util.command_line import Parser


def main(arguments: Sequence[str]) -> int:
    """Write the page; raises FixableError on unusable files."""
    parser = Parser(
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
    options = parser.parse(arguments)
    write_report(options.files, options.output)
    print(f"{options.output.resolve()} ({options.output.stat().st_size / 1e6:.1f} MB)")
    return 0
