"""`suite`: list and verify suites, and print a leaderboard."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..evaluation.leaderboard import (
    encode_standings,
    leaderboard_table,
    standing,
    suite_floors,
    trained_questions,
)
from ..evaluation.store import read_results
from ..problems.suites import NAMES, load_suite, require_same_questions
from ..sandbox.pool import TaskPool
from ..settings import add_settings, pool_settings, read_environment
from ..tasks.facts import known_categories
from ..util.command_line import Parser
from ..util.files import write_whole
from ..util.progress import with_progress
from ..util.values import escape_control_characters, table


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand."""
    options = build_parser().parse(arguments)
    print(escape_control_characters(options.run(options)))
    return 0


def build_parser() -> Parser:
    parser = Parser(
        "suite",
        "Fixed evaluation sets with the hash of every question, for results that can "
        "be compared: `evaluate --suite NAME` runs one.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="list the suites of the package")
    listing.set_defaults(run=list_suites)
    verify = commands.add_parser(
        "verify", help="generate every item of a suite and compare its question's hash"
    )
    verify.option("suite", "a name of `suite list`, or a file")
    add_settings(verify)
    verify.set_defaults(run=verify_suite)
    table = commands.add_parser(
        "table", help="print the leaderboard of evaluations on a suite"
    )
    table.option("results", "folders of evaluations", nargs="+", type=Path)
    table.option("--suite", "of the results: a name or a file", required=True)
    table.flag("--json", "print JSON, with the right answers to every item")
    table.option("-o/--output", "write it to a file", type=Path, metavar="FILE")
    table.set_defaults(run=print_table)
    return parser


def list_suites(_: Namespace) -> str:
    rows = [["name", "items", "tasks", "sha256", "about"]]
    for suite in map(load_suite, NAMES):
        left_out = (
            f"; {len(suite.left_out)} faulty ones left out" if suite.left_out else ""
        )
        sizes = (str(len(suite)), str(len(suite.tasks)))
        rows.append([suite.name, *sizes, suite.sha256[:12], f"{suite.about}{left_out}"])
    return table(rows, drop=["sha256"])


def verify_suite(options: Namespace) -> str:
    suite = load_suite(options.suite)
    workers = pool_settings(read_environment(options))

    async def generate() -> None:
        async with TaskPool(workers, Counter()) as pool:
            made = [pool.generate_fixed(recipe) for recipe, _ in suite.recipes()]
            require_same_questions(suite, await with_progress(made, suite.name))

    asyncio.run(generate())
    return f"{suite.name} {suite.version}: all {len(suite)} questions have the hashes of the file"


def print_table(options: Namespace) -> str:
    suite = load_suite(options.suite)
    results = [read_results(path) for path in options.results]
    standings = [standing(one, suite) for one in results]
    source_by_task = {
        sample.task: sample.source
        for one in results
        for sample in one.samples
        if sample.source
    }
    if options.json:
        text = encode_standings(suite, standings)
    else:
        text = leaderboard_table(
            standings,
            known_categories() | source_by_task,
            suite_floors(suite),
            trained=trained_questions(suite),
        )
        if suite.was_drawn_by_seeds:
            text += (
                f" Seeds, not questions, decided the split of {suite.name}@{suite.version}: "
                "training may have asked any of its questions."
            )
    if options.output is None:
        return text
    write_whole(options.output, text + "\n")
    return f"{options.output}: {len(standings)} evaluations on {suite.name} {suite.version}"
