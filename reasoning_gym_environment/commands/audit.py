"""`audit`: what every task's verifier pays for."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..audit.findings import Known, known_findings
from ..audit.pages import as_html, as_json, as_markdown, as_text, chance_floors
from ..audit.run import AuditSettings, audit_tasks
from ..util.files import require_place


def main(
    arguments: Sequence[str], *, known: Mapping[str, Mapping[str, Known]] | None = None
) -> int:
    """Examine every task; 1 when something is found that isn't known.

    Args:
        known: instead of the package's own table.
    """
    parser = ArgumentParser(
        prog="reasoning-gym-environment audit",
        description="Examine every task's verifier and levels.",
    )
    parser.add_argument("--tasks", default="", help="names, separated by commas; default: all")
    parser.add_argument(
        "--items",
        type=int,
        default=30,
        help="of each task (default: 30); floors are measured on ten times as many",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    for kind, what in (("html", "a page"), ("markdown", "a page"), ("floors", "the floors")):
        parser.add_argument(f"--{kind}", metavar="FILE", type=Path, help=f"write {what} there")
    options = parser.parse_args(arguments)
    if options.items < 1:
        parser.error(f"--items is {options.items}: at least one is needed")

    for output in (options.html, options.markdown, options.floors):
        if output is not None:
            require_place(output.parent, str(output))
    names = [name for name in options.tasks.split(",") if name]
    table = known_findings() if known is None else known
    audit = asyncio.run(audit_tasks(AuditSettings(tasks=names, items=options.items, known=table)))
    pages = (
        (options.html, as_html),
        (options.markdown, as_markdown),
        (options.floors, chance_floors),
    )
    for path, render in pages:
        if path is not None:
            path.write_text(render(audit), encoding="utf-8")
    print(as_json(audit) if options.json else as_text(audit))
    return 1 if audit.unexplained else 0
