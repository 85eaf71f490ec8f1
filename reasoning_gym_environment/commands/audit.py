"""`audit`: what every task's verifier pays for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from ..audit.findings import KnownFindings, known_findings
from ..audit.pages import as_html, as_json, as_markdown, as_text, chance_floors, page_data
from ..audit.run import audit_tasks
from ..util.command_line import Parser, number
from ..util.files import require_place


def main(arguments: Sequence[str], *, known: KnownFindings | None = None) -> int:
    """Audit every task; return 1 if there are findings that aren't in the table of known ones."""
    options = build_parser().parse(arguments)
    for output in (options.html, options.markdown, options.floors):
        if output is not None:
            require_place(output.parent, str(output))
    names = [name for name in options.tasks.split(",") if name]
    table = known_findings() if known is None else known
    audit = asyncio.run(audit_tasks(names, items=options.items, known=table))
    for path, render in ((options.html, as_html), (options.floors, chance_floors)):
        if path is not None:
            path.write_text(render(audit), encoding="utf-8")
    if options.markdown is not None:
        data = page_data(audit)
        options.markdown.write_text(as_markdown(data), encoding="utf-8")
        text = json.dumps(data, indent=1) + "\n"
        options.markdown.with_suffix(".json").write_text(text, encoding="utf-8")
    print(as_json(audit) if options.json else as_text(audit))
    return 1 if audit.unexplained else 0


def build_parser() -> Parser:
    parser = Parser("audit", "Check what every task's verifier pays for, and its levels.")
    parser.option("--tasks", "names, separated by commas (default: all)", default="")
    parser.option(
        "--items",
        "items of each task; floors use ten times as many",
        type=number(int, ge=1),
        default=30,
    )
    parser.flag("--json", "print JSON instead of text")
    for name, what in (
        ("--html", "an HTML page"),
        ("--markdown", "a Markdown page, and its data as JSON beside it"),
        ("--floors", "the floors"),
    ):
        parser.option(name, f"also write {what}", metavar="FILE", type=Path)
    return parser
