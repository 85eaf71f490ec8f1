"""Puts a table that is made from the code into a page, between two comments with its name."""

from __future__ import annotations

import sys
from pathlib import Path


def write_table(page: Path, name: str, table: str) -> int | str:
    """Write a table into its page, or with `--check` only compare; return the exit status.

    A text is what the page lacks, which `sys.exit` prints.
    """
    begin, end = f"<!-- {name} table: begin -->", f"<!-- {name} table: end -->"
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    new_text = f"{before}{begin}\n{table}\n{end}{after}"
    if "--check" in sys.argv[1:]:
        return 0 if new_text == text else f"{page.name} is out of date; run make docs"
    page.write_text(new_text, encoding="utf-8")
    return 0
