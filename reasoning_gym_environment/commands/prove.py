"""`prove`: whether tasks, or with `--rows` the rows of any trainer, are fit to train on."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import ConfigurationError, FixableError, GenerationError
from ..problems.held_out import held_out_hashes
from ..problems.suites import built_in, load_suite, question_sha256
from ..proof.checks import DEFAULT_ITEMS, Check, summaries
from ..proof.findings import Finding, known_findings
from ..proof.proving import Proofs, prove_tasks
from ..records import Fault, Recipe
from ..sandbox.pool import TaskPool, generate_with_retry
from ..settings import (
    EnvironmentSettings,
    add_settings,
    pool_settings,
    read_environment,
)
from ..tasks.modules import proof_file
from ..tasks.recipes import read_recipe
from ..util.command_line import Parser, number
from ..util.files import require_place
from ..util.progress import with_progress
from ..util.values import escape_control_characters, replace_surrogates, shorten, table
from ._evaluation_items import evaluation_set


def main(arguments: Sequence[str]) -> int:
    """Prove tasks; return 1 if a check fails for no known reason, or with --strict if one does
    not pass.
    """
    options = build_parser().parse(arguments)
    env = read_environment(options)
    if options.rows is not None:
        usual = build_parser().parse([])
        unused = ("tasks", "all", "output", "items", "seconds", "strict")
        if any(getattr(options, name) != getattr(usual, name) for name in unused):
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
            known=known_findings(),
            files=[options.output] if options.output else beside,
        )
    )
    print(as_json(proofs) if options.json else as_text(proofs))
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
        "of processor time at most, for each task",
        type=number(float, gt=0),
        default=120.0,
    )
    parser.flag("--strict", "status 1 unless every task is proved")
    parser.option(
        "--items",
        "items of each task; a tenth of them of each level, besides 200 draws",
        type=number(int, ge=1),
        default=DEFAULT_ITEMS,
    )
    parser.flag("--json", "print JSON instead of text")
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
    evaluation = ("eval_seed", "eval_difficulties", "num_eval_samples_per_task")
    add_settings(parser, *evaluation, "skip_faulty_items", "generation_timeout")
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
            "not tried: the same command goes on; give it more --seconds where time ran out"
        )
    return escape_control_characters(table(lines))


def _check_lines(
    name: str, check: Check, findings: Sequence[Finding]
) -> Iterator[Sequence[str]]:
    """Yield a check's verdict, and below it all that was found, with examples."""
    verdict = check.verdict.replace("_", " ")
    news = [one for one in findings if one.check == name and not one.explanation]
    found = summaries(sorted(news, key=lambda one: one.verdict != check.verdict))
    [(reason, example), *others] = found or [(check.reason, check.example)]
    if check.verdict == "not_tried":
        others = found
        reason = check.reason
        example = ""
    yield [f"  {name.replace('_', ' ')}", verdict, reason]
    for text in [f"  {example}", *chain(*((r, f"  {e}") for r, e in others))]:
        if text.strip():
            yield ["", "", text]


def as_json(proofs: Proofs) -> str:
    """Return the results as JSON, without what has been drawn so far."""
    return json.dumps(
        {"versions": proofs.versions, "tasks": msgspec.to_builtins(proofs.tasks)},
        indent=1,
    )


class RowFinding(NamedTuple):
    """What is wrong with a row; `kind` is a `FaultKind`, or evaluation, repeat or unreadable."""

    row: int
    task: str
    kind: str
    detail: str


def prove_rows(path: Path, config: EnvironmentSettings, *, as_json: bool) -> int:
    """Print what is wrong with the rows of a file; return 1 if there is anything."""
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            rows: list[Any] = parquet.read_table(path).to_pylist()
        else:
            rows = [
                line.decode(errors="replace") for line in path.read_bytes().splitlines()
            ]
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise FixableError(f"{path} can't be read: {error}") from error
    found = asyncio.run(check_rows(rows, config))
    if as_json:
        findings = [finding._asdict() for finding in found]
        print(json.dumps({"rows": len(rows), "findings": findings}, indent=1))
    else:
        lines = [
            f"row {row}: {task} {kind}: {detail}" for row, task, kind, detail in found
        ]
        kinds = Counter(finding.kind for finding in found).most_common()
        numbers = (
            ", ".join(f"{count} {kind}" for kind, count in kinds) or "nothing found"
        )
        print(
            escape_control_characters(
                "\n".join([*lines, f"{len(rows)} rows: {numbers}"])
            )
        )
    return 1 if found else 0


async def check_rows(
    rows: Sequence[Any], config: EnvironmentSettings
) -> list[RowFinding]:
    """Return what is wrong with rows of NeMo Gym, verl, or any with a recipe or an entry."""
    findings: list[RowFinding] = []
    first: dict[tuple[str, str], int] = {}
    suites: dict[tuple[str, str], str] = {}
    # The smallest come last, so that an item has the name of its smallest suite.
    for suite_name in reversed(built_in()):
        for recipe, _, digits in load_suite(suite_name).items():
            suites[recipe.task, digits] = suite_name
    async with TaskPool(pool_settings(config), Counter()) as pool:
        ladders = {
            task: ladder.levels for task, ladder in (await pool.ladders()).items()
        }
        evaluated = evaluation_set(pool, config, ladders)
        jobs = [_asked(row, pool, ladders) for row in rows]
        for number, asked in enumerate(await with_progress(jobs, "rows"), start=1):
            if isinstance(asked, str):
                findings.append(RowFinding(number, "", "unreadable", asked))
                continue
            recipe, question, answer, fault = asked
            hashes = held_out_hashes(recipe.task, question, answer)
            name = partial(RowFinding, number, recipe.task)
            suite = suites.get((recipe.task, question_sha256(question)[:8]))
            if fault is not None:
                findings.append(name(fault.kind.value, fault.detail))
            if suite is not None:
                findings.append(name("evaluation", f"in the suite {suite}"))
            elif recipe.is_evaluation:
                findings.append(name("evaluation", "its seed is never trained on"))
            elif hashes & await evaluated.questions(recipe.task):
                findings.append(
                    name("evaluation", "in the evaluation set of these settings")
                )
            before = first.setdefault((recipe.task, question), number)
            if before < number:
                findings.append(name("repeat", f"asks what row {before} asks"))
    return findings


async def _asked(
    row: Any, pool: TaskPool, tasks: Collection[str]
) -> tuple[Recipe, str, str | None, Fault | None] | str:
    """Return a row's recipe, question, answer and fault, or why not; an entry's seed is 0."""
    objects = list(_objects(row))
    for each in objects:
        if {"task", "seed"} <= each.keys() <= {field.name for field in fields(Recipe)}:
            try:
                made = await generate_with_retry(pool.generate, read_recipe(each))
            except (GenerationError, ValueError) as error:
                return str(error)
            if objects[0].get("question") not in (None, made.question):
                return "its recipe makes another question with the installed library"
            return made.recipe, made.question, made.oracle, made.fault
    for each in objects:
        metadata = _parsed(each.get("metadata"))
        if isinstance(metadata, dict) and isinstance(
            question := each.get("question"), str
        ):
            task = str(metadata.get("source_dataset"))
            if task not in tasks:
                return f"metadata.source_dataset is not a task: {shorten(task)}"
            try:
                fault = await pool.fault_of(task, {**each, "metadata": metadata})
            except GenerationError as error:
                return f"{task}: its entry can't be checked ({error})"
            question, answer = (
                replace_surrogates(str(t))[0] for t in (question, each.get("answer"))
            )
            return Recipe(task=task, seed=0), question, answer, fault
    return "it has neither a recipe nor an entry of reasoning-gym"


def _objects(value: Any, depth: int = 4) -> Iterator[dict[str, Any]]:
    """Yield an object and those in it, also as JSON text: frameworks nest and encode them."""
    value = _parsed(value)
    if isinstance(value, dict) and depth:
        yield value
        for inner in value.values():
            yield from _objects(inner, depth - 1)


def _parsed(value: Any) -> Any:
    """Parse a JSON object's text; any other value stays."""
    with suppress(ValueError, RecursionError):
        return (
            json.loads(value)
            if isinstance(value, str) and value.startswith("{")
            else value
        )
    return value
