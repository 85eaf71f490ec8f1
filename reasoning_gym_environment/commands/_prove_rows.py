"""`prove --rows`: which rows of any trainer are faulty, of an evaluation set, or repeat others."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FixableError, GenerationError
from ..problems.stream import question_hash
from ..problems.suites import built_in, load_suite, question_sha256
from ..records import Fault, Recipe
from ..sandbox.pool import TaskPool, generate_with_retry
from ..settings import EnvironmentSettings, pool_settings
from ..tasks.item_checks import item_fault
from ..tasks.recipes import read_recipe
from ..util.progress import with_progress
from ..util.values import escape_control_characters, shorten
from .problems import evaluation_set

SETTINGS = ["eval_seed", "eval_difficulties", "num_eval_samples_per_task", "skip_faulty_items"]
SETTINGS += ["generation_timeout", "task_processes", "task_modules", "task_environment"]
"""The settings of `serve` that apply here."""


class Finding(NamedTuple):
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
            rows = [line.decode(errors="replace") for line in path.read_bytes().splitlines()]
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise FixableError(f"{path} can't be read: {error}") from error
    found = asyncio.run(check_rows(rows, config))
    if as_json:
        findings = [finding._asdict() for finding in found]
        print(json.dumps({"rows": len(rows), "findings": findings}, indent=1))
    else:
        lines = [f"row {row}: {task} {kind}: {detail}" for row, task, kind, detail in found]
        kinds = Counter(finding.kind for finding in found).most_common()
        numbers = ", ".join(f"{count} {kind}" for kind, count in kinds) or "nothing found"
        print(escape_control_characters("\n".join([*lines, f"{len(rows)} rows: {numbers}"])))
    return 1 if found else 0


async def check_rows(rows: Sequence[Any], config: EnvironmentSettings) -> list[Finding]:
    """Return what is wrong with rows of NeMo Gym, verl, or any with a recipe or an entry."""
    found: list[Finding] = []
    first: dict[tuple[str, str], int] = {}
    suites = {
        (recipe.task, digits): name
        for name in reversed(built_in())  # an item has the name of its smallest suite
        for recipe, _, digits in load_suite(name).items()
    }
    async with TaskPool(pool_settings(config), Counter()) as pool:
        ladders = {task: known.levels for task, known in (await pool.ladders()).items()}
        evaluated = evaluation_set(pool, config, ladders)
        jobs = [_asked(row, pool, ladders) for row in rows]
        for number, asked in enumerate(await with_progress(jobs, "rows"), start=1):
            if isinstance(asked, str):
                found.append(Finding(number, "", "unreadable", asked))
                continue
            recipe, question, fault = asked
            name = partial(Finding, number, recipe.task)
            suite = suites.get((recipe.task, question_sha256(question)[:8]))
            if fault is not None:
                found.append(name(fault.kind.value, fault.detail))
            if suite is not None:
                found.append(name("evaluation", f"in the suite {suite}"))
            elif recipe.is_evaluation:
                found.append(name("evaluation", "its seed is never trained on"))
            elif question_hash(question) in await evaluated.questions(recipe.task):
                found.append(name("evaluation", "in the evaluation set of these settings"))
            if (before := first.setdefault((recipe.task, question), number)) < number:
                found.append(name("repeat", f"asks what row {before} asks"))
    return found


async def _asked(
    row: Any, pool: TaskPool, tasks: Collection[str]
) -> tuple[Recipe, str, Fault | None] | str:
    """Return a row's recipe, question and fault, or why it can't be told; an entry's seed is 0."""
    objects = list(_objects(row))
    for each in objects:
        if {"task", "seed"} <= each.keys() <= {field.name for field in fields(Recipe)}:
            try:
                made = await generate_with_retry(pool.generate, read_recipe(each))
            except (GenerationError, ValueError) as error:
                return str(error)
            if objects[0].get("question") not in (None, made.question):
                return "its recipe makes another question with the installed library"
            return made.recipe, made.question, made.fault
    for each in objects:
        metadata = _parsed(each.get("metadata"))
        if isinstance(metadata, dict) and isinstance(question := each.get("question"), str):
            if (task := str(metadata.get("source_dataset"))) not in tasks:
                return f"metadata.source_dataset is not a task: {shorten(task)}"
            try:
                fault = item_fault(task, {**each, "metadata": metadata})
            except Exception as error:  # noqa: BLE001 - an entry of others may hold anything: it is named
                return f"{task}: its entry can't be checked ({type(error).__name__}: {error})"
            return Recipe(task=task, seed=0), question, fault
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
        return json.loads(value) if isinstance(value, str) and value.startswith("{") else value
    return value
