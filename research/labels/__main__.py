"""`python -m research.labels`: check labels with solvers, or two versions of the library."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.util.files import require_place
from reasoning_gym_environment.util.values import escape_control_characters

from . import answers, check, versions


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand; return 1 if it finds something, 2 after a mistake that the user can fix."""
    options = build_parser().parse_args(arguments)
    names = [name for name in options.tasks.split(",") if name]
    try:
        status: int = options.run(options, names)
    except FixableError as error:
        print(f"error: {escape_control_characters(str(error))}", file=sys.stderr)
        return 2
    return status


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m research.labels", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    checking = commands.add_parser(
        "check", help="check labels with independent solvers"
    )
    checking.set_defaults(run=check_labels)
    checking.add_argument(
        "--markdown",
        metavar="FILE",
        type=Path,
        help="also write a page, and its data as JSON",
    )

    comparing = commands.add_parser(
        "against",
        help="compare the installed reasoning-gym with another one by items, labels and scores",
    )
    comparing.set_defaults(run=compare_versions)
    comparing.add_argument(
        "version",
        help="a version, a path of a checkout or archive, or a pip requirement; it is installed "
        "into a virtual environment of its own",
    )
    comparing.add_argument(
        "--environment",
        metavar="FOLDER",
        type=Path,
        help="keep that virtual environment here and use it again (default: a temporary folder)",
    )
    for command, items, level_items in ((checking, 300, 30), (comparing, 10, 2)):
        command.add_argument(
            "--json", action="store_true", help="print JSON instead of text"
        )
        for option, default, what in (
            ("--items", items, "items of each task"),
            ("--level-items", level_items, "items of each level"),
        ):
            command.add_argument(
                option,
                type=_at_least_one,
                default=default,
                help=f"{what} (default: {default})",
            )

    published = commands.add_parser(
        "answers", help="compare labels with a file of published answers"
    )
    published.set_defaults(run=compare_answers)
    published.add_argument(
        "file", type=Path, help="as `research.leaderboard import` reads it"
    )
    for command in (checking, comparing, published):
        command.add_argument(
            "--tasks", default="", help="names, separated by commas (default: all)"
        )
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be an integer ≥ 1, got {text}")
    return int(text)


def check_labels(options: Namespace, names: Sequence[str]) -> int:
    """Return 1 if an item check misses a faulty item or leaves out a sound one."""
    page: Path | None = options.markdown
    if page is not None:
        require_place(page.parent, str(page))
    checked = asyncio.run(
        check.audit_labels(names, items=options.items, level_items=options.level_items)
    )
    if page is not None:
        data = check.page_data(checked)
        page.write_text(check.as_markdown(data), encoding="utf-8")
        page.with_suffix(".json").write_text(
            json.dumps(data, indent=1) + "\n", encoding="utf-8"
        )
    print(check.as_json(checked) if options.json else check.as_text(checked))
    return 1 if any(audit.missed or audit.refused for audit in checked) else 0


def compare_answers(options: Namespace, names: Sequence[str]) -> int:
    print(answers.as_text(asyncio.run(answers.audit_published(options.file, names))))
    return 0


def compare_versions(options: Namespace, names: Sequence[str]) -> int:
    """Return 1 if anything differs."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.environment or Path(temporary) / "environment"
        other = versions.other_interpreter(options.version, folder)
        audit = asyncio.run(
            versions.audit_versions(
                other, names, items=options.items, level_items=options.level_items
            )
        )
    text = versions.as_json(audit) if options.json else versions.as_text(audit)
    print(escape_control_characters(text))
    return 1 if audit.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
