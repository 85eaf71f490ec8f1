"""Published answers of models as a detector of false labels that needs no solver.

Where strong models agree with one another and not with the label, one side is wrong. Often it is
the models.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path

from reasoning_gym_environment.proof.proving import chosen_tasks
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.extraction import (
    extract_answer,
    strip_formatting,
)
from reasoning_gym_environment.util.progress import with_progress
from reasoning_gym_environment.util.values import group_by

from ..leaderboard.published import PublishedItem, made_again, read_published
from .check import Examination, solver_processes
from .solvers.registry import SOLVERS
from .solvers.solution import UnreadableQuestionError

STRONG_MODELS = frozenset(
    {
        "anthropic_claude-sonnet-4",
        "deepseek_deepseek-r1",
        "openai_o3-mini",
        "qwen_qwq-32b",
        "x-ai_grok-3-mini-beta",
    }
)
"""The models with full credit for more than half of their answers; four answered each item."""

_AGREEING = 3
"""Strong models that must give the same answer."""

_ITEMS_AT_ONCE = 4


class Judgment(str, Enum):
    """What a solver says of an item on which models and label differ."""

    FALSE_LABEL = "false label"
    MODELS_WRONG = "models wrong"
    STRICT = "verifier too strict"
    AMBIGUOUS = "ambiguous"
    UNANSWERABLE = "no right answer"
    BOTH_WRONG = "label and models wrong"
    UNREADABLE = "unreadable"
    NO_SOLVER = "no solver"


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """One item whose label differs from the answer of strong models.

    Attributes:
        models: how many strong models gave the answer most often.
        score: of the answer, by the verifier.
    """

    recipe: Recipe
    label: str | None
    answer: str
    models: int
    score: float
    judgment: Judgment


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedAudit:
    """What published answers say of the labels.

    Attributes:
        agreed: items on which enough strong models agree.
        changed: those of them that this version of the library doesn't make again.
    """

    items: int
    agreed: int
    changed: int
    disagreements: Sequence[Disagreement]


def agreed_answer(item: PublishedItem) -> tuple[str, int] | None:
    """Return the answer that enough strong models give most often, and how many they are."""
    given: dict[str, Counter[str]] = {}
    texts: dict[str, str] = {}
    for published in item.answers:
        answer = extract_answer(published.text).answer
        if answer is None:
            continue
        normalized = " ".join(strip_formatting(answer).split()).casefold()
        texts.setdefault(normalized, answer)
        for model, _ in published.given_by:
            if model in STRONG_MODELS:
                given.setdefault(model, Counter())[normalized] += 1
    votes = Counter(counts.most_common(1)[0][0] for counts in given.values())
    for normalized, models in votes.most_common(1):
        if models >= _AGREEING:
            return texts[normalized], models
    return None


async def audit_published(path: Path, names: Sequence[str]) -> PublishedAudit:
    """Compare published answers with the labels, with a progress bar on a terminal.

    Args:
        names: of tasks; empty means every task.

    Raises:
        ConfigurationError: a line of the file is invalid.
        FixableError: the solvers' packages are not installed.
        UnknownTaskError: a name is unknown.
        WorkerStartError: the worker processes don't start.
    """
    items = list(read_published(path))
    places = asyncio.Semaphore(_ITEMS_AT_ONCE)
    async with solver_processes() as (pool, executor):
        tasks = chosen_tasks(await pool.discover(), names)
        items = [item for item in items if item.task in tasks]
        agreed = [(item, both) for item in items if (both := agreed_answer(item))]

        async def one(
            item: PublishedItem, answer: str, models: int
        ) -> Disagreement | bool:
            async with places:
                problem = await made_again(pool, item)
                if problem is None:
                    return False
                return (
                    await _disagreement(pool, executor, problem, answer, models) or True
                )

        found = await with_progress(
            [one(item, *both) for item, both in agreed], "answers"
        )
    return PublishedAudit(
        items=len(items),
        agreed=len(agreed),
        changed=sum(one is False for one in found),
        disagreements=[one for one in found if isinstance(one, Disagreement)],
    )


async def _disagreement(
    pool: TaskPool, executor: Executor, problem: Problem, answer: str, models: int
) -> Disagreement | None:
    [verdict] = await pool.verify(problem, [answer])
    if verdict.score is None or verdict.score >= 1.0:
        return None
    loop = asyncio.get_running_loop()
    task = problem.recipe.task
    return Disagreement(
        recipe=problem.recipe,
        label=problem.oracle,
        answer=answer,
        models=models,
        score=verdict.score,
        judgment=await loop.run_in_executor(
            executor, judge, task, problem.question, problem.oracle, answer
        ),
    )


def judge(task: str, question: str, label: str | None, answer: str) -> Judgment:
    """Return what the task's solver says of a label and of an answer that the verifier refuses."""
    if task not in SOLVERS:
        return Judgment.NO_SOLVER
    try:
        found = Examination(task, question, label, [answer])
    except UnreadableQuestionError:
        return Judgment.UNREADABLE
    if not found.right:
        return Judgment.UNANSWERABLE
    if found.ambiguous:
        return Judgment.AMBIGUOUS
    if answer in found.wrong:
        return Judgment.MODELS_WRONG if found.label_is_right else Judgment.BOTH_WRONG
    return Judgment.STRICT if found.label_is_right else Judgment.FALSE_LABEL


def as_text(audit: PublishedAudit) -> str:
    """Return the counts by task, and every item on which models and label differ."""
    in_order = sorted(
        audit.disagreements, key=lambda one: (one.recipe.task, one.judgment)
    )
    by_task = group_by(lambda one: one.recipe.task, in_order)
    lines = [
        f"reasoning-gym {version('reasoning-gym')}: {audit.items} items, models agree on"
        f" {audit.agreed}, {audit.changed} of these are made differently today,"
        f" {len(audit.disagreements)} disagree with the label"
    ]
    for task, found in by_task.items():
        counts = Counter(one.judgment for one in found)
        kinds = ", ".join(
            f"{count} {kind.value}" for kind, count in counts.most_common()
        )
        lines.append(f"{task}: {len(found)} items; {kinds}")
    return "\n".join([*lines, *map(_described, audit.disagreements)])


def _described(one: Disagreement) -> str:
    return (
        f"\n{one.recipe.task}: {one.judgment.value}\n  recipe {json.dumps(one.recipe.to_json())}\n"
        f"  label {one.label!r}\n  {one.models} models {one.answer!r}: score {one.score:.6g}"
    )
