"""Labels checked by independent solvers: false, ambiguous, and verifiers that disagree."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from enum import Enum
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import get_context
from operator import methodcaller
from pathlib import Path
from pickle import loads
from types import MappingProxyType
from typing import Any

from reasoning_gym_environment.errors import FixableError, GenerationError
from reasoning_gym_environment.problems.seeds import evaluation_recipes
from reasoning_gym_environment.proof.findings import probes_for
from reasoning_gym_environment.proof.proving import chosen_tasks
from reasoning_gym_environment.records import Ladder, Problem, Recipe, Status
from reasoning_gym_environment.sandbox.pool import (
    PoolSettings,
    TaskPool,
    default_processes,
)
from reasoning_gym_environment.scoring.grading import verify_texts
from reasoning_gym_environment.util.progress import with_progress
from reasoning_gym_environment.util.values import group_by, shorten

from .solvers.registry import PROPERTIES, SOLVERS
from .solvers.solution import UnreadableQuestionError

_SEED = 3
_TASKS_AT_ONCE = 4
_VERIFIED = 30
"""Items of a task and level whose right and wrong answers go to the verifier."""


class Kind(str, Enum):
    """What is wrong with an item or with its verifier."""

    FALSE = "false label"
    UNANSWERABLE = "no right answer"
    AMBIGUOUS = "ambiguous"
    CONVENTION = "convention"
    STRICT = "verifier too strict"
    LAX = "verifier too lax"
    VIOLATION = "property violated"
    UNREADABLE = "unreadable"


CONVENTIONS = MappingProxyType(
    {
        "color_cube_rotation": "about which axis to bring the bottom to the top",
        "leg_counting": "whether a starfish has legs; higher levels have hardly an item without",
        "letter_jumble": "which word fits where the text breaks off: `callers` or `cellars`",
        "maze": "no step is diagonal; nearly all items depend on it",
        "number_sequence": "the library's rule where four terms fit another one as short: after "
        "1, 2, 5, 12 comes 30 (five times the term, halved), or 29 (twice the term and the one "
        "before); about 3 % of default items",
        "puzzle24": "all four numbers are used; 83 % of default items can do with fewer",
        "rectangle_count": "outlines that cross at four points are two, not the four that touch "
        "there",
        "simple_integration": "the X of an integrand is the x of dx; half of the items have both",
        "string_synthesis": "when to start again with rule 1; on its levels all items depend on it",
    }
)
"""Tasks to what their question leaves open and the items that are asked don't.

Solvers count the items of four tasks as `Kind.CONVENTION`.
"""

FAULTS = (Kind.FALSE, Kind.UNANSWERABLE, Kind.AMBIGUOUS, Kind.VIOLATION)
"""The kinds that are faults of the item itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One item, or one answer to it, and what is wrong.

    Attributes:
        text: the answer that the verifier misjudges, else empty.
        detail: what the solver says.
        left_out: whether the item check knows the item as faulty.
    """

    kind: Kind
    recipe: Recipe
    question: str
    label: str | None
    text: str
    detail: str
    left_out: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelAudit:
    """The labels of one task at its default or at one level.

    Attributes:
        level: None means the default configuration.
        items: that were checked.
        failed: items that could not be generated.
        left_out: items that the item check knows as faulty.
        examples: one for each fault that was found.
    """

    task: str
    level: int | None
    items: int
    failed: int
    left_out: Sequence[Problem]
    examples: Sequence[Example]

    def count(self, *kinds: Kind) -> int:
        """Return the number of items with one of these kinds."""
        return len({e.recipe.seed for e in self.examples if e.kind in kinds})

    @property
    def missed(self) -> list[Example]:
        """The faulty items that the item check does not know."""
        return [e for e in self.examples if e.kind in FAULTS and not e.left_out]

    @property
    def refused(self) -> list[Problem]:
        """The items that the item check takes for faulty, and the task's solver does not."""
        if self.task not in SOLVERS:
            return []
        faulty = {e.recipe.seed for e in self.examples if e.kind in FAULTS}
        return [
            problem for problem in self.left_out if problem.recipe.seed not in faulty
        ]


class Examination:
    """What a solver says of one item; made in a process of its own, so it is plain data."""

    def __init__(
        self, task: str, question: str, label: str | None, others: Sequence[str]
    ) -> None:
        solution = SOLVERS[task](question)
        self.label_is_right = label is None or solution.accepts(label)
        self.right = tuple(solution.right)
        self.ambiguous = solution.ambiguous
        self.wrong = tuple(
            text
            for text in (*solution.wrong, *others)
            if text and not solution.accepts(text)
        )


@contextlib.asynccontextmanager
async def solver_processes() -> AsyncIterator[tuple[TaskPool, Executor]]:
    """Start a task pool, and processes for the solvers.

    Raises:
        FixableError: the solvers' packages are not installed.
        WorkerStartError: the worker processes don't start.
    """
    if find_spec("z3") is None:
        raise FixableError("checking labels needs z3-solver: pip install z3-solver")
    processes = default_processes()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as executor:
        async with TaskPool(PoolSettings(processes=processes), Counter()) as pool:
            yield pool, executor


async def audit_labels(
    names: Sequence[str], *, items: int, level_items: int
) -> list[LabelAudit]:
    """Check the labels of tasks, with a progress bar on a terminal.

    Args:
        names: of tasks; empty means every task.
        items: of each task at its default configuration.
        level_items: of each level of its ladder.

    Raises:
        FixableError: the solvers' packages are not installed.
        UnknownTaskError: a name is unknown.
        WorkerStartError: the worker processes don't start.
    """
    places = asyncio.Semaphore(_TASKS_AT_ONCE)
    async with solver_processes() as (pool, executor):
        tasks = chosen_tasks(await pool.discover(), names)
        ladders = await pool.ladders()

        async def one(task: str) -> list[LabelAudit]:
            async with places:
                levels: Ladder = ladders[task].levels
                return [
                    await audit_level(pool, executor, task, None, {}, items=items),
                    *[
                        await audit_level(
                            pool, executor, task, *level, items=level_items
                        )
                        for level in enumerate(levels)
                    ],
                ]

        found = await with_progress([one(task) for task in tasks], "labels")
    return [audit for audits in found for audit in audits]


async def audit_level(
    pool: TaskPool,
    executor: Executor,
    task: str,
    level: int | None,
    parameters: Mapping[str, Any],
    *,
    items: int,
) -> LabelAudit:
    """Check the labels of one task at one level."""
    problems: list[Problem] = []
    failed = 0
    for one in evaluation_recipes(_SEED, [task], items):
        recipe = Recipe(task=task, seed=one.seed, level=level, parameters=parameters)
        try:
            problems.append(await pool.generate(recipe))
        except GenerationError:
            failed += 1
    examples: list[Example] = []
    for index, problem in enumerate(problems):
        if task in SOLVERS:
            examples += await _examine(
                pool, executor, problem, verified=index < _VERIFIED
            )
        elif task in PROPERTIES:
            examples += _check_property(problem)
    return LabelAudit(
        task=task,
        level=level,
        items=len(problems),
        failed=failed,
        left_out=[problem for problem in problems if problem.fault is not None],
        examples=examples,
    )


def _check_property(problem: Problem) -> list[Example]:
    violation = PROPERTIES[problem.recipe.task].violation(loads(problem.entry))
    return [_example(problem, Kind.VIOLATION, detail=violation)] if violation else []


def _example(
    problem: Problem, kind: Kind, *, text: str = "", detail: str = ""
) -> Example:
    return Example(
        kind=kind,
        recipe=problem.recipe,
        question=problem.question,
        label=problem.oracle,
        text=text,
        detail=detail,
        left_out=problem.fault is not None,
    )


async def _examine(
    pool: TaskPool, executor: Executor, problem: Problem, *, verified: bool
) -> list[Example]:
    """Compare the label with the solver, and the verifier with both if `verified`."""
    label = problem.oracle
    probes = (
        probes_for(problem.question, label, constants=(), others=()) if verified else []
    )
    others = [probe.answer for probe in probes if not probe.is_right]
    examine: Callable[[], Examination]
    examine = partial(
        Examination, problem.recipe.task, problem.question, _label(problem), others
    )
    try:
        found = await asyncio.get_running_loop().run_in_executor(executor, examine)
    except UnreadableQuestionError as error:
        return [_example(problem, Kind.UNREADABLE, detail=str(error))]
    right = ", ".join(shorten(text) for text in found.right[:3])
    if not found.right:
        return [_example(problem, Kind.UNANSWERABLE, detail="no answer is right")]
    if not found.label_is_right:
        return [_example(problem, Kind.FALSE, detail=f"right: {right}")]
    if found.ambiguous:
        kind = Kind.CONVENTION if problem.recipe.task in CONVENTIONS else Kind.AMBIGUOUS
        return [_example(problem, kind, detail=f"{found.ambiguous}; right: {right}")]
    return await _disagreements(pool, problem, found) if verified else []


def _label(problem: Problem) -> str | None:
    """Return an item's answer, or the example of one where several are right."""
    if problem.oracle is not None:
        return problem.oracle
    example: str | None = loads(problem.entry)["metadata"].get("example_answer")
    return example


async def _disagreements(
    pool: TaskPool, problem: Problem, found: Examination
) -> list[Example]:
    """Return the answers that are solved though wrong, or not solved though right."""
    texts = [f"<answer>{text}</answer>" for text in (*found.right, *found.wrong)]
    graded = await verify_texts(
        problem, texts, pool, any_form=True, answer_format="tags"
    )
    judged = [(answer or "", verdict) for answer, verdict in graded]
    right, wrong = judged[: len(found.right)], judged[len(found.right) :]
    return [
        _example(
            problem, kind, text=answer, detail=f"the verifier pays {verdict.score}"
        )
        for kind, answers in ((Kind.STRICT, right), (Kind.LAX, wrong))
        for answer, verdict in answers
        if (verdict.status is Status.SOLVED) == (kind is Kind.LAX)
    ]


def as_text(audits: Sequence[LabelAudit]) -> str:
    """Return a line by task and level, and a minimal example of each kind and task."""
    lines = [f"reasoning-gym {version('reasoning-gym')}: {summary(audits)}"]
    for audit in audits:
        kinds = ", ".join(f"{audit.count(k)} {k.value}" for k in Kind if audit.count(k))
        level = "default" if audit.level is None else f"level {audit.level}"
        checks = f", {len(audit.left_out)} left out" if audit.left_out else ""
        checks += f", {len(audit.missed)} missed" if audit.missed else ""
        checks += f", {len(audit.refused)} sound ones left out" if audit.refused else ""
        lines.append(
            f"{audit.task} {level}: {audit.items} items; {kinds or 'no finding'}{checks}"
        )
    return "\n".join(
        [*lines, *("\n" + _example_text(e) for e in shortest_examples(audits))]
    )


def summary(audits: Sequence[LabelAudit]) -> str:
    """Return how many items were checked, are faulty, and pass their check though faulty."""
    items = sum(audit.items for audit in audits)
    faulty = sum(audit.count(*FAULTS) for audit in audits)
    missed = sum(len(audit.missed) for audit in audits)
    refused = sum(len(audit.refused) for audit in audits)
    return (
        f"{faulty} of {items} items are faulty; the item checks miss {missed} of them, and leave "
        f"out {refused} that are sound"
    )


def shortest_examples(audits: Sequence[LabelAudit]) -> list[Example]:
    """Return the example with the shortest question of each task and kind."""
    groups = group_by(
        lambda e: (e.recipe.task, e.kind),
        [e for audit in audits for e in audit.examples],
    )
    return [min(own, key=lambda e: len(e.question)) for own in groups.values()]


def _example_text(e: Example) -> str:
    return (
        f"{e.recipe.task}: {e.kind.value}\n  recipe {json.dumps(e.recipe.to_json())}\n"
        f"  question {e.question!r}\n  label {e.label!r}\n  answer {e.text!r}: {e.detail}"
    )


def as_json(audits: Sequence[LabelAudit]) -> str:
    """Return the counts by task and level, and all examples, as JSON."""
    return json.dumps(
        [
            {
                "task": audit.task,
                "level": audit.level,
                "checked_by": checked_by(audit.task),
                "items": audit.items,
                "failed": audit.failed,
                "left_out": len(audit.left_out),
                "missed": len(audit.missed),
                "refused": len(audit.refused),
                "counts": {kind.value: audit.count(kind) for kind in Kind},
                "examples": [
                    {**asdict(e), "kind": e.kind.value, "recipe": e.recipe.to_json()}
                    for e in audit.examples
                ],
            }
            for audit in audits
        ],
        indent=1,
    )


def checked_by(task: str) -> str:
    """Return what checks a task's labels."""
    if task in SOLVERS:
        return "a solver"
    known = PROPERTIES.get(task)
    return f"a property: {known.checked}" if known and known.checked else "nothing"


def page_data(audits: Sequence[LabelAudit]) -> dict[str, Any]:
    """Return what the documentation tells, as plain JSON: counts by task, and examples."""
    tasks = group_by(lambda audit: audit.task, audits)
    return {
        "library_version": version("reasoning-gym"),
        "summary": summary(audits),
        "tasks": {
            task: {"checked_by": checked_by(task), **_counts(own)}
            for task, own in tasks.items()
        },
        "examples": [
            {
                "recipe": e.recipe.to_json(),
                "kind": e.kind.value,
                "question": e.question,
                "label": e.label,
                "answer": e.text,
                "detail": e.detail,
            }
            for e in shortest_examples(audits)
        ],
    }


def _counts(audits: Sequence[LabelAudit]) -> dict[str, list[int]]:
    """Return a task's counts, each of default items and of the items of all levels."""
    parts = [
        [a for a in audits if (a.level is None) is default] for default in (True, False)
    ]

    def both(count: Callable[[LabelAudit], int]) -> list[int]:
        return [sum(map(count, part)) for part in parts]

    return {
        "items": both(lambda audit: audit.items),
        "left out": both(lambda audit: len(audit.left_out)),
        "missed": both(lambda audit: len(audit.missed)),
        **{kind.value: both(methodcaller("count", kind)) for kind in Kind},
    }


def as_markdown(data: Mapping[str, Any]) -> str:
    """Return the page of the documentation, in Markdown, from `page_data`."""
    tasks: Mapping[str, Mapping[str, Any]] = data["tasks"]
    by = Counter(counts["checked_by"].split(":")[0] for counts in tasks.values())
    head = _HEAD.format(
        version=data["library_version"],
        summary=data["summary"],
        solved=by["a solver"],
        tasks=len(tasks),
        checked=by["a property"],
        others=by["nothing"],
    )
    unsolved = [
        f"| `{task}` | {PROPERTIES[task].reason} | {PROPERTIES[task].checked or '-'} |"
        for task in tasks
        if task in PROPERTIES
    ]
    rows = [
        f"| `{task}` | {found} |"
        for task, own in tasks.items()
        if (found := _findings(own))
    ]
    conventions = [f"- `{task}`: {what}" for task, what in CONVENTIONS.items()]
    second = Path(__file__).with_name("second_reading.md").read_text(encoding="utf-8")
    return "\n".join(
        [
            head,
            *rows,
            _CONVENTIONS,
            *conventions,
            "",
            second.rstrip(),
            _UNSOLVED,
            *unsolved,
            "",
        ]
    )


_HEAD = """\
# The labels of every task

<!-- generated: do not edit -->
Solvers that read nothing but the text of a question check the labels of reasoning-gym {version}:
{summary}.
Problems that an item check knows as faulty are skipped
([scoring](../../docs/scoring.md#items-with-a-false-label)). Solvers and checks know only the
readings of a question that [two readers](#the-second-reading) found. {solved} of {tasks} tasks have
a solver, {checked} a property that is checked instead, and {others} neither.
[Labels](../../docs/labels.md) is the summary.

`make labels` writes this page and, beside it, [the counts of every task and the
examples](labels.json) with recipe and question. `python -m research.labels check --json` prints all
faulty items.

A finding has its number of default items and of items of all levels; most tasks have 300 items,
and 30 of each level. "Too strict" means that a right answer isn't solved, "too lax" that a wrong
one is.

| task | findings |
| --- | --- |"""

_CONVENTIONS = """
## Conventions

Too many items of these tasks depend on what the question leaves open, or too little tells which
ones, to leave them out of evaluation. The label follows this reading:
"""

_UNSOLVED = """
## Tasks without a solver

| task | why | what is checked |
| --- | --- | --- |"""


def _findings(counts: Mapping[str, Any]) -> str:
    """Return the kinds of findings of a task, and how many items have each."""
    found = {kind.value: counts[kind.value] for kind in Kind if any(counts[kind.value])}
    return ", ".join(
        f"{kind} {default}/{levels}" for kind, (default, levels) in found.items()
    )
