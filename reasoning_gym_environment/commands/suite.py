"""`suite`: list and verify suites, print a leaderboard, and import published answers."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..evaluation.leaderboard import (
    encode_standings,
    leaderboard_table,
    read_standings,
    standing,
)
from ..evaluation.metrics import Baselines
from ..evaluation.published import PublishedItem, import_answers, read_published
from ..evaluation.store import EvaluationStore, read_results
from ..problems.suites import built_in, load_suite, require_same_questions
from ..sandbox.pool import PoolSettings, TaskPool, default_processes, generate_with_retry
from ..scoring.grading import ScoringSettings
from ..tasks.catalogue import known_categories
from ..util.files import require_place, require_writable, write_whole
from ..util.progress import with_progress
from ..util.text import escape_control_characters

PACKAGES = ("reasoning-gym", "reasoning-gym-environment")


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand."""
    options = build_parser().parse_args(arguments)
    print(escape_control_characters(options.run(options)))
    return 0


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="reasoning-gym-environment suite",
        description="Fixed evaluation sets with the hash of every question, for results that can "
        "be compared: `evaluate --suite NAME` runs one.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="list the suites of the package")
    listing.set_defaults(run=list_suites)
    verify = commands.add_parser(
        "verify", help="generate every item of a suite and compare its question's hash"
    )
    verify.add_argument("suite", help="a name of `suite list`, or a file")
    verify.set_defaults(run=verify_suite)
    table = commands.add_parser("table", help="print the leaderboard of evaluations on a suite")
    table.add_argument(
        "results", nargs="+", type=Path, help="folders of evaluations, or files of --json"
    )
    table.add_argument("--suite", required=True, help="of the results: a name or a file")
    table.add_argument("--json", action="store_true", help="print JSON, with shares by task")
    table.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it to a file")
    table.set_defaults(run=print_table)
    importing = commands.add_parser(
        "import",
        help="score published answers and write them as evaluations",
        description="Each line of FILE is a JSON object: set (a suite's name, or any), task, "
        "parameters, seed, question_sha256_16 (the first 16 digits of the question's SHA-256) and "
        "answers, a list of {text, given_by: [[model, score or null], ...]}.",
    )
    importing.add_argument("file", type=Path, help="JSON lines, gzipped or not")
    importing.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    importing.add_argument("--models", nargs="+", help="import these alone")
    importing.add_argument(
        "--suites", nargs="+", default=[], metavar="FILE", help="suites besides the package's"
    )
    importing.set_defaults(run=import_file)
    return parser


def list_suites(_: Namespace) -> str:
    suites = [load_suite(name) for name in built_in()]
    lines = [f"{'name':12} {'items':>6} {'tasks':>6}  {'sha256':12}  about"]
    lines += [
        f"{s.name:12} {len(s):>6} {len(s.tasks):>6}  {s.sha256[:12]}  {s.about}"
        + (f"; {len(s.left_out)} faulty ones left out" if s.left_out else "")
        for s in suites
    ]
    return "\n".join(lines)


def verify_suite(options: Namespace) -> str:
    suite = load_suite(options.suite)

    async def generate() -> None:
        async with TaskPool(PoolSettings(processes=default_processes()), Counter()) as pool:
            made = [generate_with_retry(pool, recipe) for recipe, _ in suite.recipes()]
            require_same_questions(suite, await with_progress(made, suite.name))

    asyncio.run(generate())
    return f"{suite.name} {suite.version}: all {len(suite)} questions have the hashes of the file"


def print_table(options: Namespace) -> str:
    results = [read_results(path) for path in options.results if path.suffix != ".json"]
    files = [path for path in options.results if path.suffix == ".json"]
    suite = load_suite(options.suite)
    baselines = Baselines.at_threshold(None, categories=known_categories(), attempts=1)
    standings = [standing(each, suite, baselines) for each in results]
    standings += [each for path in files for each in read_standings(path, suite)]
    text = encode_standings(suite, standings) if options.json else leaderboard_table(standings)
    if options.output is None:
        return text
    require_writable(options.output.parent)
    write_whole(options.output, text + "\n")
    return f"{options.output}: {len(standings)} evaluations on {suite.name} {suite.version}"


def of_models(
    items: Sequence[PublishedItem], models: Sequence[str], path: Path
) -> list[PublishedItem]:
    """Return the answers of some models; raise ConfigurationError if one has none."""
    known = {m for item in items for answer in item.answers for m, _ in answer.given_by}
    if unknown := set(models) - known:
        raise ConfigurationError(
            f"--models: {path} has no answers of {', '.join(sorted(unknown))}; it has "
            f"{', '.join(sorted(known))}"
        )
    for item in items:
        for answer in item.answers:
            answer.given_by = [(m, score) for m, score in answer.given_by if m in models]
        item.answers = [answer for answer in item.answers if answer.given_by]
    return [item for item in items if item.answers]


def import_file(options: Namespace) -> str:
    items = list(read_published(options.file))
    if options.models:
        items = of_models(items, options.models, options.file)
    require_place(options.output, "--output")
    scoring = ScoringSettings(max_token_length=1 << 20)
    versions = {package: version(package) for package in PACKAGES}
    about = {"library_versions": versions, "scoring": scoring.to_json()}

    async def score() -> Any:
        settings = PoolSettings(processes=default_processes())
        async with TaskPool(settings, Counter()) as pool:
            return await import_answers(items, pool, scoring, about)

    suites = {suite.name: suite for suite in map(load_suite, [*built_in(), *options.suites])}
    imported = asyncio.run(score())
    lines = []
    for (name, model), samples in imported.samples.items():
        folder = options.output / name / model
        settings = {
            **scoring.to_json(),
            "imported": options.file.name,
            "library_versions": versions,
            "max_token_length": None,
            "model_name": model,
            "suite": suites[name].identity if name in suites else None,
        }
        store = EvaluationStore(folder, settings)
        store.complete(samples, {"imported": options.file.name})
        lines.append(f"{folder}: {len(samples)} items")
    if changed := imported.changed:
        lines.append(
            f"Left out: {changed.total()} items that this version of the library makes "
            f"differently ({', '.join(f'{task} {n}' for task, n in changed.most_common())})"
        )
    return "\n".join(lines)
