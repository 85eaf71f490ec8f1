"""`report`: an HTML page from dumps and evaluation results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..report.page import write_report
from ..rollouts.figures import describe
from ..util.command_line import Parser


def main(arguments: Sequence[str]) -> int:
    """Write the page; raises FixableError on unusable files."""
    parser = Parser(
        "report", "Make one self-contained HTML page from dumps and evaluation results."
    )
    parser.option(
        "files",
        "dumps, evaluation samples (.jsonl), metrics.json, folders with any of them",
        nargs="+",
        type=Path,
    )
    parser.option(
        "-o/--output",
        "file to write",
        type=Path,
        default=Path("report.html"),
    )
    parser.flag("--force", "replace an existing file")
    parser.flag("--json", "print the figures as JSON instead of text")
    options = parser.parse(arguments)
    runs = write_report(options.files, options.output, force=options.force)
    path = options.output.resolve()
    if options.json:
        described = [run.to_json() for run in runs]
        print(json.dumps({"report": str(path), "runs": described}, indent=2))
        return 0
    size = f"{path.stat().st_size / 1e6:.1f} MB"
    print(f"{path} ({size})")
    for run in runs:
        for row in run.all_figures():
            mark = "  worse" if row.marked else ""
            print(f"{run.name}: {describe(row)}{mark}")
    return 0
