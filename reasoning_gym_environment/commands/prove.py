"""`prove`: whether tasks, or with `--rows` the rows of any trainer, are fit to train on."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, FixableError
from ..proof import certificate
from ..proof.checks import DEFAULT_ITEMS, Check, summaries
from ..proof.endpoint_proof import EndpointResult, prove_endpoint
from ..proof.endpoints import protocol_of
from ..proof.findings import Finding, known_findings
from ..proof.proving import Proofs, prove_tasks
from ..proof.rows import CheckedRows, check_rows
from ..sandbox.pool import TaskPool
from ..settings import (
    EnvironmentSettings,
    add_settings,
    pool_settings,
    read_environment,
)
from ..tasks.modules import proof_file
from ..util.command_line import Parser, number
from ..util.files import require_place
from ..util.values import escape_control_characters, table

MOST_LEFT_OPEN = 20
"""Lines of what was not checked: a file may have thousands of rows that can't be sent."""


def main(arguments: Sequence[str]) -> int:
    """Prove tasks; return 1 if a check fails for no known reason, or with --strict if one does
    not pass.
    """
    options = build_parser().parse(arguments)
    env = read_environment(options)
    usual = build_parser().parse([])
    of_tasks = ("tasks", "all", "output", "items", "seconds", "strict")
    given = {
        name for name in of_tasks if getattr(options, name) != getattr(usual, name)
    }
    if options.url is not None:
        if options.rows is None or given & {"tasks", "all", "output"}:
            raise ConfigurationError(
                "--url needs --rows, and takes no tasks, --all or -o"
            )
        return prove_url(options)
    if options.yes:
        raise ConfigurationError("--yes belongs to --url")
    if options.rows is not None:
        if given:
            raise ConfigurationError(
                "--rows takes no tasks, --all, --items, --seconds, --strict or -o"
            )
        return prove_rows(options.rows, env, as_json=options.json)
    if bool(options.tasks) is options.all:
        raise ConfigurationError(
            "name the tasks to prove, or write --all; `tasks` lists them"
        )
    if options.output is not None:
        require_place(options.output.parent, str(options.output))
    settings = pool_settings(env)
    beside = [
        proof_file(module) for module in settings.modules if module.shown != module.name
    ]
    proofs = asyncio.run(
        prove_tasks(
            options.tasks,
            settings,
            items=options.items,
            seconds=options.seconds,
            known_findings=known_findings(),
            files=[options.output] if options.output else beside,
        )
    )
    if options.json:
        print(certificate.as_json(certificate.of_tasks(proofs)))
    else:
        print(as_text(proofs))
    verdicts = {task.verdict for task in proofs.tasks.values()}
    refused = verdicts - {"proved"} if options.strict else verdicts & {"failed"}
    return 1 if refused else 0


def build_parser() -> Parser:
    parser = Parser(
        "prove",
        "Prove tasks: the same items again, right answers paid and wrong ones not, verdicts "
        "contained, levels that differ. Status 1 if a check fails. What time did not allow is "
        "not tried; with a file, the same command continues from there.",
    )
    parser.option("tasks", "tasks to prove", nargs="*", metavar="TASK")
    parser.flag("--all", "all tasks of the modules, or else of the library")
    parser.option(
        "--seconds",
        "of processor time at most, for each task, shared by its levels",
        type=number(float, gt=0),
        default=120.0,
    )
    parser.flag("--strict", "status 1 unless every task is proved")
    parser.option(
        "--items",
        "default items of each task; a tenth of them of each level; fewer than 200 prove nothing",
        type=number(int, ge=1),
        default=DEFAULT_ITEMS,
    )
    parser.flag("--json", "print a certificate in JSON instead of text")
    parser.option(
        "-o/--output",
        "write the proof; beside a module named by its path unless given",
        metavar="FILE",
        type=Path,
    )
    parser.option(
        "--rows",
        "check a file of rows instead: of NeMo Gym or verl, or any with recipes or entries",
        metavar="FILE",
        type=Path,
    )
    parser.option(
        "--url",
        "check the verifier at a URL by the rows: ends in /score (this package's rewards), /verify "
        "(NeMo Gym) or /step (OpenEnv); --items and --seconds (of the clock) limit it",
    )
    parser.flag("--yes", "send answers also to a --url that is not on this machine")
    add_settings(parser, "answer_format", "skip_faulty_items", "generation_timeout")
    return parser


def as_text(proofs: Proofs) -> str:
    """Return each task's verdict; all checks of a single task, else those that haven't passed."""
    lines: list[Sequence[str]] = []
    for task in proofs.tasks.values():
        lines.append(f"{task.task}: {task.verdict.replace('_', ' ')}")
        for name, check in task.checks.items():
            if len(proofs.tasks) == 1 or check.verdict not in ("passed", "known"):
                lines += _check_lines(name, check, task.findings)
    counts = Counter(task.verdict.replace("_", " ") for task in proofs.tasks.values())
    # Findings that are known or waived and were not seen again: repaired faults, or luck.
    for name, task in proofs.tasks.items():
        lines += [f"not seen: {name}: {', '.join(task.unseen)}"] if task.unseen else []
    lines.append(", ".join(f"{n} {name}" for name, n in counts.items()))
    if counts["not tried"]:
        lines.append(
            "not tried: run the same command again to go on, with more --seconds if time ran out, "
            f"and with at least {DEFAULT_ITEMS} --items"
        )
    return escape_control_characters(table(lines))


def _check_lines(
    name: str, check: Check, findings: Sequence[Finding]
) -> Iterator[Sequence[str]]:
    """Yield a check's verdict, and below it all that was found, with examples."""
    verdict = check.verdict.replace("_", " ")
    news = [
        finding
        for finding in findings
        if finding.check == name and not finding.explanation
    ]
    news.sort(key=lambda finding: finding.verdict != check.verdict)
    lines = summaries(news)
    [(reason, example), *further_lines] = lines or [(check.reason, check.example)]
    if check.verdict == "not_tried":
        further_lines = lines
        reason = check.reason
        example = ""
    yield [f"  {name.replace('_', ' ')}", verdict, reason]
    below = [f"  {example}"]
    for further_reason, further_example in further_lines:
        below += [further_reason, f"  {further_example}"]
    for text in below:
        if text.strip():
            yield ["", "", text]


def prove_url(options: Namespace) -> int:
    """Print what the verifier at a URL pays; return 1 if a check fails, or as --strict says."""
    protocol = protocol_of(options.url, anywhere=options.yes)
    result = asyncio.run(
        prove_endpoint(
            options.url,
            protocol,
            read_rows(options.rows),
            items=options.items,
            seconds=options.seconds,
        )
    )
    if options.json:
        print(certificate.as_json(certificate.of_endpoint(result)))
    else:
        print(endpoint_text(result))
    if options.strict:
        return 0 if result.verdict == "proved" else 1
    return 1 if result.verdict == "failed" else 0


def endpoint_text(result: EndpointResult) -> str:
    """Return the checks of an endpoint, and what they have left open."""
    verdict = result.verdict.replace("_", " ")
    lines: list[Sequence[str]] = [f"{result.url} ({result.protocol}): {verdict}"]
    for name, check in result.checks.items():
        lines += _check_lines(name, check, result.findings)
    left_open = Counter(
        f"not checked: {one.check.replace('_', ' ')}: {one.reason}"
        for one in result.not_checked
    )
    lines += [*left_open][:MOST_LEFT_OPEN]
    if len(left_open) > MOST_LEFT_OPEN:
        lines.append(f"not checked: {len(left_open) - MOST_LEFT_OPEN} more, see --json")
    return escape_control_characters(table(lines))


def read_rows(path: Path) -> list[Any]:
    """Return the rows of a Parquet file, or the lines of another; FixableError if it can't."""
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            rows: list[Any] = parquet.read_table(path).to_pylist()
            return rows
        return [
            line.decode(errors="replace") for line in path.read_bytes().splitlines()
        ]
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise FixableError(f"{path} can't be read: {error}") from error


def prove_rows(path: Path, config: EnvironmentSettings, *, as_json: bool) -> int:
    """Print what is wrong with the rows of a file; return 1 if there is anything."""
    rows = read_rows(path)
    checked = asyncio.run(checked_rows(rows, config))
    if as_json:
        print(certificate.as_json(certificate.of_rows(checked)))
    else:
        lines = [
            f"row {finding.row}: {finding.task} {finding.kind}: {finding.detail}"
            for finding in checked.findings
        ]
        print(escape_control_characters("\n".join([*lines, checked.summary()])))
    return 1 if checked.findings else 0


async def checked_rows(rows: Sequence[Any], config: EnvironmentSettings) -> CheckedRows:
    """Check rows in processes of their own."""
    async with TaskPool(pool_settings(config), Counter()) as pool:
        ladders = {
            task: ladder.levels for task, ladder in (await pool.ladders()).items()
        }
        return await check_rows(rows, pool, ladders)
