"""`audit`: what every task's verifier pays for."""

from __future__ import annotations

import asyncio
import json
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..audit import labels, published, versions
from ..audit.findings import KnownFindings, known_findings
from ..audit.pages import as_html, as_json, as_markdown, as_text, chance_floors, page_data
from ..audit.run import audit_tasks
from ..util.files import require_place
from ..util.text import escape_control_characters

PAGES = {
    "html": "an HTML page",
    "markdown": "a Markdown page, and its data as JSON beside it",
    "floors": "the floors",
}


def main(arguments: Sequence[str], *, known: KnownFindings | None = None) -> int:
    """Audit every task; return 1 if there are unknown findings.

    Args:
        known: replaces the package's table of known findings.
    """
    options = parse(arguments)
    for output in (options.html, options.markdown, options.floors):
        if output is not None:
            require_place(output.parent, str(output))
    names = [name for name in options.tasks.split(",") if name]
    if options.answers is not None:
        compared = published.audit_published(options.answers, names)
        print(published.as_text(asyncio.run(compared)))
        return 0
    if options.oracles:
        return check_labels(options, names)
    if options.against is not None:
        return audit_against(options, names)
    table = known_findings() if known is None else known
    audit = asyncio.run(audit_tasks(names, items=options.items or 30, known=table))
    for path, render in ((options.html, as_html), (options.floors, chance_floors)):
        if path is not None:
            path.write_text(render(audit), encoding="utf-8")
    if options.markdown is not None:
        write_page(options.markdown, page_data(audit), as_markdown)
    print(as_json(audit) if options.json else as_text(audit))
    return 1 if audit.unexplained else 0


def write_page(path: Path, data: Mapping[str, Any], render: Callable[[Any], str]) -> None:
    """Write a Markdown page, and its data as JSON beside it."""
    path.write_text(render(data), encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def audit_against(options: Namespace, names: Sequence[str]) -> int:
    """Print what differs between the installed library and another version; return 1 if any."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.environment or Path(temporary) / "environment"
        other = versions.other_interpreter(options.against, folder)
        items, level_items = options.items or 10, options.level_items or 2
        audit = asyncio.run(
            versions.audit_versions(other, names, items=items, level_items=level_items)
        )
    text = versions.as_json(audit) if options.json else versions.as_text(audit)
    print(escape_control_characters(text))
    return 1 if audit.differences else 0


def check_labels(options: Namespace, names: Sequence[str]) -> int:
    """Check labels; return 1 if an item check misses a faulty item or leaves out a sound one."""
    checked = asyncio.run(
        labels.audit_labels(
            names, items=options.items or 300, level_items=options.level_items or 30
        )
    )
    if options.markdown is not None:
        write_page(options.markdown, labels.page_data(checked), labels.as_markdown)
    print(labels.as_json(checked) if options.json else labels.as_text(checked))
    return 1 if any(audit.missed or audit.refused for audit in checked) else 0


def parse(arguments: Sequence[str]) -> Namespace:
    """Parse the options; exits with a message if one is invalid."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    for name, number in (("items", options.items), ("level-items", options.level_items)):
        if number is not None and number < 1:
            parser.error(f"--{name} must be an integer ≥ 1, got {number}")
    if options.oracles and (options.html or options.floors):
        parser.error("--oracles writes --markdown and --json alone")
    if options.oracles and options.against is not None:
        parser.error("give --oracles or --against")
    if options.answers is not None and not options.oracles:
        parser.error("--answers needs --oracles")
    return options


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="reasoning-gym-environment audit",
        description="Check what every task's verifier pays for, and its levels.",
    )
    parser.add_argument("--tasks", default="", help="names, separated by commas (default: all)")
    parser.add_argument(
        "--items",
        type=int,
        help="items of each task (default: 30, with --oracles 300, with --against 10); floors use "
        "ten times as many",
    )
    parser.add_argument(
        "--oracles",
        action="store_true",
        help="check labels with independent solvers instead of verifiers with probes",
    )
    parser.add_argument(
        "--level-items",
        type=int,
        help="items of each level, with --oracles (default: 30) or --against (default: 2)",
    )
    parser.add_argument(
        "--answers",
        metavar="FILE",
        type=Path,
        help="with --oracles: compare labels with this file of published answers instead",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    for kind in PAGES:
        parser.add_argument(
            f"--{kind}", metavar="FILE", type=Path, help=f"also write {PAGES[kind]}"
        )
    add_versions(parser)
    return parser


def add_versions(parser: ArgumentParser) -> None:
    """Add the options of the comparison with another version."""
    parser.add_argument(
        "--against",
        metavar="VERSION",
        help="compare the installed reasoning-gym with another one by items, labels and scores: a "
        "version, a path of a checkout or archive, or a pip requirement; it is installed into a "
        "virtual environment of its own. Exits with 1 if anything differs",
    )
    parser.add_argument(
        "--environment",
        metavar="FOLDER",
        type=Path,
        help="with --against: keep that virtual environment here and use it again (default: a "
        "temporary folder)",
    )
