"""`python -m research.leaderboard`: add evaluations, import published answers, make the page."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.evaluation.leaderboard import encode_standings
from reasoning_gym_environment.evaluation.store import EvaluationStore, read_results
from reasoning_gym_environment.problems.suites import NAMES, earlier_file, load_suite
from reasoning_gym_environment.sandbox.pool import (
    PoolSettings,
    TaskPool,
    default_processes,
)
from reasoning_gym_environment.scoring.grading import ScoringSettings
from reasoning_gym_environment.util.files import require_place, write_whole
from reasoning_gym_environment.util.values import escape_control_characters

from . import page
from .floors import write_floors
from .published import ImportedAnswers, PublishedItem, import_answers, read_published
from .standings import (
    Training,
    published_standing,
    published_table,
    read_standings,
)
from .submission import submitted_standing

PACKAGES = ("reasoning-gym", "reasoning-gym-environment")


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand; return 2 after a mistake that the user can fix."""
    options = build_parser().parse_args(arguments)
    try:
        print(escape_control_characters(options.run(options)))
    except FixableError as error:
        print(f"error: {escape_control_characters(str(error))}", file=sys.stderr)
        return 2
    return 0


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m research.leaderboard", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_adding(commands)
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
        "--suites",
        nargs="+",
        default=[],
        metavar="FILE",
        help="suites besides the package's",
    )
    importing.set_defaults(run=import_file)
    standing = commands.add_parser(
        "standing",
        help="print an imported evaluation as JSON, for docs/leaderboard/SUITE",
    )
    standing.add_argument(
        "results", type=Path, metavar="FOLDER", help="that `import` wrote"
    )
    standing.add_argument(
        "--suite", required=True, help="of the results: a name or a file"
    )
    standing.set_defaults(run=print_standing)
    floors = commands.add_parser(
        "floors", help="measure what no reasoning solves of a suite"
    )
    floors.add_argument("suite", help="with one set of parameters for each task")
    floors.add_argument("--items", type=int, default=150, help="of each task")
    floors.set_defaults(run=write_floors)
    docs = commands.add_parser(
        "docs",
        help="fill docs/leaderboard.md and tables.md from docs/leaderboard/SUITE/*.json and draw "
        "the picture",
    )
    docs.add_argument("docs", type=Path)
    docs.add_argument(
        "--imported",
        type=Path,
        metavar="FOLDER",
        help="that `import` wrote: print why ranks move and scores differ",
    )
    docs.set_defaults(run=lambda options: page.make(options.docs, options.imported))
    return parser


def _add_adding(commands: _SubParsersAction[ArgumentParser]) -> None:
    adding = commands.add_parser(
        "add",
        help="check a folder that `evaluate --suite` wrote, and add its row",
        description="Score all answers again, and write DOCS/leaderboard/SUITE/MODEL.json.",
    )
    adding.add_argument("results", type=Path, metavar="FOLDER")
    adding.add_argument("--suite", required=True, help="a name or a file")
    adding.add_argument(
        "--training",
        required=True,
        choices=get_args(Training),
        help="what the model's training had: nothing of reasoning-gym, its tasks but no item of "
        "the suite, or nobody knows",
    )
    adding.add_argument("--name", help="of the row (default: the model's)")
    adding.add_argument("--docs", type=Path, default=Path("docs"))
    adding.set_defaults(run=add_row)


def add_row(options: Namespace) -> str:
    suite = load_suite(options.suite)
    if earlier_file(suite.name, suite.version):
        raise FixableError(
            f"--suite must be the newest version, got {options.suite}: run `evaluate --suite "
            f"{suite.name}`, and add that"
        )
    row = submitted_standing(
        options.results, suite, name=options.name, training=options.training
    )
    file = options.docs / "leaderboard" / suite.name / f"{row.model}.json"
    if file.exists():
        raise FixableError(
            f"{file} exists: give another --name, or delete the file to replace its row"
        )
    others = sorted(file.parent.glob("*.json"))
    standings = [each for path in others for each in read_standings(path, suite)]
    table = published_table([*standings, row], suite)
    write_whole(file, encode_standings(suite, [row]) + "\n")
    fills = f"`python -m research.leaderboard docs {options.docs}` fills the tables"
    return f"{page.main_columns(table)}\n\n{file}: all rules hold; {fills}"


def print_standing(options: Namespace) -> str:
    suite = load_suite(options.suite)
    return encode_standings(
        suite, [published_standing(read_results(options.results), suite)]
    )


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
            answer.given_by = [
                (m, score) for m, score in answer.given_by if m in models
            ]
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

    async def score() -> ImportedAnswers:
        settings = PoolSettings(processes=default_processes())
        async with TaskPool(settings, Counter()) as pool:
            return await import_answers(items, pool, scoring, about)

    suites = {suite.name: suite for suite in map(load_suite, [*NAMES, *options.suites])}
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
