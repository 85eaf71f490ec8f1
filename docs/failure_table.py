"""Writes the table of failures of docs/reliability.md from the code; `--check` only compares.

python docs/failure_table.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from page_table import write_table

from reasoning_gym_environment.atropos.failures import (
    FAILURES,
    MAX_LOSSES,
    Failure,
)
from reasoning_gym_environment.atropos.items import MAX_RETRIES

PAGE = Path(__file__).with_name("reliability.md")


def end_of_run(failure: Failure, *, ends: bool) -> str:
    """Say after how many failures in a row a command ends, and with which status."""
    if not ends:
        return "goes on"
    status = 75 if failure.may_pass else 2
    return f"ends with {status} after {failure.patience * MAX_LOSSES} in a row"


def table() -> str:
    """Return a line for each kind of failure."""
    lines = [
        "| what fails | the group | its problem | `serve` | `process` |",
        "| --- | --- | --- | --- | --- |",
    ]
    for failure in FAILURES:
        problem = "is not asked again"
        if failure.is_asked_again:
            problem = f"comes up to {MAX_RETRIES} more times"
        cells = (
            failure.about,
            f"`groups/{failure.outcome.value}`",
            problem,
            end_of_run(failure, ends=failure.ends_serve),
            end_of_run(failure, ends=failure.ends_process),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int | str:
    return write_table(PAGE, "failure", table())


if __name__ == "__main__":
    sys.exit(main())
