"""Whether rows that one didn't write are fit to train on: each row against what else is known.

A row with a recipe is compared with the problem that this makes. An entry of reasoning-gym is
compared with itself: its answer is scored by its own verifier and held against its metadata. Where
the verifier only compares with the answer and the metadata lacks it, nothing knows more than the
row. Such rows are counted as not checked.
"""

from __future__ import annotations

import asyncio
import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from msgspec import Struct

from ..errors import GenerationError
from ..problems.identity import identity_of
from ..problems.split import belongs_to_evaluation, is_published
from ..problems.suites import NAMES, load_suite, question_sha256
from ..records import Fault, Ladder, Problem, Recipe, Status, Verdict
from ..sandbox.pool import TaskPool
from ..scoring.grading import verify_bare, verify_texts
from ..tasks.catalogue import restore_json_entry
from ..tasks.facts import has_few_questions
from ..util.progress import with_progress
from ..util.values import group_by, replace_surrogates, shorten
from .entry_relations import Relations, learn_relations
from .row_reading import RowContent, read_row

FEW_DOUBTED = 4
"""Rows of a task that may all be called wrong. Of more than these, half must be like fresh ones:
otherwise it is the parameters that differ."""


NO_VERDICT = {
    Status.TIMEOUT,
    Status.OUT_OF_MEMORY,
    Status.CRASHED,
    Status.VERIFIER_ERROR,
    Status.UNSCORED,
}
"""Of an entry's own answer: its verifier may need parameters that the entry doesn't name."""


class RowFinding(Struct, frozen=True):
    """What is wrong with a row.

    Attributes:
        row: its number, from 1.
        kind: a `FaultKind`, or wrong, changed, evaluation, repeat or unreadable.
    """

    row: int
    task: str
    kind: str
    detail: str


class Unchecked(Struct, frozen=True):
    """A row whose answer nothing else confirms, and why."""

    row: int
    task: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedRows:
    """What is known of the rows of a file."""

    rows: int
    findings: Sequence[RowFinding]
    unchecked: Sequence[Unchecked]

    def summary(self) -> str:
        """Return the number of rows by what was found.

        Example:
            >>> found = [RowFinding(1, "gcd", "wrong", "…")]
            >>> print(CheckedRows(rows=2, findings=found, unchecked=[]).summary())
            2 rows: 1 wrong
        """
        rows_by_kind: defaultdict[str, set[int]] = defaultdict(set)
        for finding in self.findings:
            rows_by_kind[SHOWN_KINDS.get(finding.kind, finding.kind)].add(finding.row)
        parts = [f"{len(rows)} {kind}" for kind, rows in rows_by_kind.items()]
        reasons = Counter(row.reason for row in self.unchecked)
        parts += [
            f"{count} not checked ({reason})" for reason, count in reasons.most_common()
        ]
        return f"{self.rows} rows: {', '.join(parts) or 'nothing found'}"


SHOWN_KINDS = dict.fromkeys(("false_label", "unanswerable", "ambiguous"), "faulty")
"""Kinds that the summary counts under another name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRow:
    """A row's problem, and what is wrong with the row.

    Attributes:
        findings: kinds and details.
        doubts: findings by comparison with the task's default configuration.
        unchecked: why its answer can't be checked; empty if it is.
    """

    recipe: Recipe
    question: str
    answer: str | None
    fault: Fault | None
    findings: list[tuple[str, str]] = field(default_factory=list)
    doubts: list[tuple[str, str]] = field(default_factory=list)
    unchecked: str = ""


NOBODY_KNOWS = "no verifier knows more than the row"
UNLIKE = "most rows of the task differ from its default configuration"
"""Why answers are not checked."""


async def check_rows(
    rows: Sequence[Any],
    pool: TaskPool,
    ladders: Mapping[str, Ladder],
) -> CheckedRows:
    """Check rows of NeMo Gym, verl, or any with a recipe or an entry.

    Args:
        rows: objects, or their JSON text.
        ladders: of all tasks.
    """
    source = _Source(pool, ladders)
    known_rows = await with_progress([source.known(row) for row in rows], "rows")
    suites = _questions_of_suites()
    unlike = _unlike_fresh([row for row in known_rows if isinstance(row, KnownRow)])
    first_numbers: dict[tuple[str, str], int] = {}
    findings: list[RowFinding] = []
    unchecked: list[Unchecked] = []
    for number, row in enumerate(known_rows, start=1):
        if isinstance(row, str):
            findings.append(RowFinding(number, "", "unreadable", row))
            continue
        task = row.recipe.task
        row_findings = list(row.findings)
        reason = row.unchecked
        for kind, detail in row.doubts:
            if (task, kind) in unlike:
                reason = UNLIKE
            else:
                row_findings.append((kind, detail))
        if row.fault is not None:
            row_findings.append((row.fault.kind.value, row.fault.detail))
        row_findings += _contamination(row, suites)
        first_number = first_numbers.setdefault((task, row.question), number)
        if first_number < number:
            row_findings.append(("repeat", f"asks what row {first_number} asks"))
        findings += [
            RowFinding(number, task, kind, detail) for kind, detail in row_findings
        ]
        if reason:
            unchecked.append(Unchecked(number, task, reason))
    return CheckedRows(rows=len(rows), findings=findings, unchecked=unchecked)


def _questions_of_suites() -> dict[tuple[str, str], str]:
    """Return the suite of each task and beginning of a question's hash."""
    suites: dict[tuple[str, str], str] = {}
    # The smallest come last, so that an item has the name of its smallest suite.
    for name in reversed(NAMES):
        for recipe, _, digits in load_suite(name).items():
            suites[recipe.task, digits] = name
    return suites


def _contamination(
    row: KnownRow, suites: Mapping[tuple[str, str], str]
) -> list[tuple[str, str]]:
    """Return whether a row asks what training must not ask."""
    if has_few_questions(row.recipe):
        return []
    task = row.recipe.task
    suite = suites.get((task, question_sha256(row.question)[:8]))
    if suite is not None:
        return [("evaluation", f"in the suite {suite}")]
    identity = identity_of(task, row.question, row.answer)
    if is_published(identity):
        return [("evaluation", "a copy of an item of a published suite")]
    if belongs_to_evaluation(identity):
        return [("evaluation", "its question belongs to evaluation")]
    return []


def _unlike_fresh(rows: Sequence[KnownRow]) -> set[tuple[str, str]]:
    """Return tasks, with kinds of doubts that most of their rows raise."""
    unlike = set()
    for task, own_rows in group_by(lambda row: row.recipe.task, rows).items():
        kinds = Counter(kind for row in own_rows for kind, _ in row.doubts)
        for kind, doubted in kinds.items():
            if doubted > max(FEW_DOUBTED, len(own_rows) / 2):
                unlike.add((task, kind))
    return unlike


class _Source:
    """What is known of tasks beside the rows: their problems, verifiers and fresh entries."""

    def __init__(self, pool: TaskPool, ladders: Mapping[str, Ladder]) -> None:
        self._pool = pool
        self._ladders = ladders
        self._relations: dict[str, asyncio.Task[Relations]] = {}

    async def known(self, row: Any) -> KnownRow | str:
        """Return what is known of a row, or why it can't be read."""
        try:
            content = read_row(row)
            if content.recipe is not None:
                return await self._known_by_recipe(content, content.recipe)
            if content.entry is not None:
                return await self._known_by_entry(content, content.entry)
        except (GenerationError, ValueError) as error:
            return str(error)
        return (
            "it has neither a recipe nor an entry of reasoning-gym, so that nothing here knows a "
            "right answer; --url asks your verifier"
        )

    async def _known_by_recipe(
        self, content: RowContent, recipe: Recipe
    ) -> KnownRow | str:
        """Compare a row with the problem that its recipe makes."""
        problem = await self._pool.generate_fixed(recipe)
        changes = self._changes(content, recipe.task, problem.question)
        wrong_level = _wrong_level(content, recipe, self._ladders.get(recipe.task, ()))
        row_version = recipe.library_version
        if changes and row_version not in (None, problem.recipe.library_version):
            return (
                f"its recipe is of reasoning-gym {row_version}, and the installed "
                f"{problem.recipe.library_version} asks another question"
            )
        return KnownRow(
            recipe=problem.recipe,
            question=problem.question,
            answer=problem.oracle,
            fault=problem.fault,
            findings=[
                *changes,
                *wrong_level,
                *await _wrong_answers(content, problem, self._pool),
            ],
        )

    async def _known_by_entry(
        self, content: RowContent, entry: Mapping[str, Any]
    ) -> KnownRow | str:
        """Check a row that is an entry by its verifier, and by what else its entry has."""
        task = str(entry["metadata"].get("source_dataset"))
        if task not in self._ladders:
            return f"metadata.source_dataset is not a task: {shorten(task)}"
        try:
            fault = await self._pool.fault_of(task, dict(entry))
        except GenerationError as error:
            return f"{task}: its entry can't be checked ({error})"
        question, _ = replace_surrogates(entry["question"])
        answer = entry.get("answer")
        if answer is not None:
            answer, _ = replace_surrogates(str(answer))
        row = KnownRow(
            recipe=Recipe(task=task, seed=0),
            question=question,
            answer=answer,
            fault=fault,
            findings=self._changes(content, task, question),
        )
        origin = await _regenerated(content, question, self._pool)
        if origin is not None:
            wrong = await _wrong_answers(content, origin, self._pool)
            return replace(row, findings=row.findings + wrong)
        if fault is None:
            return await self._compare(row, content, entry)
        return row

    def _changes(
        self, content: RowContent, task: str, question: str
    ) -> list[tuple[str, str]]:
        """Return where a row asks another question, or names another task, than is known."""
        changes = []
        if any(question.strip() not in text for text in content.questions):
            changes.append(("changed", f"it should ask {shorten(question)}"))
        # Frameworks also keep other things below `task`.
        other_tasks = {*content.tasks} & {*self._ladders} - {task}
        if other_tasks:
            changes.append(
                ("changed", f"it is of {task}, and names {min(other_tasks)}")
            )
        return changes

    async def _compare(
        self, row: KnownRow, content: RowContent, entry: Mapping[str, Any]
    ) -> KnownRow:
        """Hold an entry against its metadata and its verifier; add what neither confirms."""
        task = row.recipe.task
        relations = await self._relations_of(task)
        whole = {**entry, "question": row.question, "answer": row.answer}
        doubts = []
        changed = relations.changed_question(whole)
        if changed:
            doubts.append(("changed", changed))
        wrong = relations.wrong_answer(whole) if row.answer is not None else ""
        if wrong:
            return replace(row, doubts=[*doubts, ("wrong", wrong)])
        refused, unchecked = await _verify_entry(row, content, whole, self._pool)
        if unchecked == NOBODY_KNOWS and relations.confirms(whole):
            unchecked = ""
        return replace(row, doubts=doubts + refused, unchecked=unchecked)

    async def _relations_of(self, task: str) -> Relations:
        if task not in self._relations:
            learned = learn_relations(self._pool, task, self._ladders[task])
            self._relations[task] = asyncio.create_task(learned)
        return await self._relations[task]


def _wrong_level(
    content: RowContent, recipe: Recipe, ladder: Ladder
) -> list[tuple[str, str]]:
    """Return whether a row or its recipe names another level than that of the parameters.

    Parameters of no level, as settings of one's own make them, say nothing of the level.
    """
    other_levels = {*content.levels} - {recipe.level}
    if other_levels:
        named = f"it names level {min(other_levels)}, and its recipe {recipe.level}"
        return [("changed", named)]
    if recipe.level is None:
        return []
    fitting = [
        level
        for level, parameters in enumerate(ladder)
        if parameters.items() <= recipe.parameters.items()
    ]
    if recipe.level in fitting or (not fitting and recipe.level < len(ladder)):
        return []
    actual = (
        f"its parameters are of level {fitting[0]}"
        if fitting
        else f"{recipe.task} has levels 0 to {len(ladder) - 1}"
    )
    return [("changed", f"it names level {recipe.level}: {actual}")]


async def _wrong_answers(
    content: RowContent, problem: Problem, pool: TaskPool
) -> list[tuple[str, str]]:
    """Return which answers and demonstrations of a row don't solve its problem.

    Raises GenerationError if scoring fails on our side.
    """
    verdicts = await verify_bare(problem, content.answers, pool)
    pairs = [*zip(content.answers, verdicts, strict=True)]
    demonstration_verdicts = await verify_texts(
        problem,
        content.demonstrations,
        pool,
        any_form=True,
        answer_format=pool.answer_format,
    )
    pairs += [
        (answer if answer is not None else text, verdict)
        for text, (answer, verdict) in zip(
            content.demonstrations, demonstration_verdicts, strict=True
        )
    ]
    for _, verdict in pairs:
        if verdict.status is Status.UNSCORED:  # on our side: it says nothing of the row
            raise GenerationError(
                f"{problem.recipe.task}: its answer can't be scored ({verdict.detail})"
            )
    return [
        ("wrong", _refusal(answer, verdict, problem.oracle))
        for answer, verdict in pairs
        if verdict.status is not Status.SOLVED
    ]


def _refusal(answer: str, verdict: Verdict, oracle: str | None) -> str:
    right = "" if oracle in (None, answer) else f"; right is {shorten(oracle)}"
    earned = f"earns {verdict.score} ({verdict.status.value})"
    return f"its answer {shorten(answer)} {earned}{right}"


async def _regenerated(
    content: RowContent, question: str, pool: TaskPool
) -> Problem | None:
    """Return the problem that an entry's seed makes; None unless it asks the same question."""
    if content.origin is None:
        return None
    try:
        problem = await pool.generate(content.origin)
    except GenerationError:  # the row's parameters may be of another version
        return None
    return problem if problem.question == question else None


class _EntryCheck(NamedTuple):
    """What an entry's verifier says of its own answer.

    Attributes:
        refused: the answers that it refuses, as doubts.
        unchecked: why the answer is not checked; empty if it is.
    """

    refused: list[tuple[str, str]]
    unchecked: str


async def _verify_entry(
    row: KnownRow, content: RowContent, entry: Mapping[str, Any], pool: TaskPool
) -> _EntryCheck:
    """Score an entry's own answer, and doubt it if it is refused."""
    try:
        restored = restore_json_entry(entry)
    except ValueError as error:
        # What the row could have instead follows.
        return _EntryCheck([], re.split("[:;]", str(error))[0])
    problem = Problem(
        recipe=row.recipe,
        question=row.question,
        oracle=row.answer,
        entry=pickle.dumps(restored),
    )
    [own_verdict] = await verify_bare(problem, [str(row.answer)], pool)
    if own_verdict.status in NO_VERDICT:
        reason = f"the default verifier has no verdict ({own_verdict.status.value})"
        return _EntryCheck([], reason)
    refused = await _wrong_answers(content, problem, pool)
    if refused:
        return _EntryCheck(refused, "")
    # With another label, only a verifier that knows more than the label takes the answer.
    relabeled = {**restored, "answer": OTHER_LABEL}
    blind = replace(problem, oracle=OTHER_LABEL, entry=pickle.dumps(relabeled))
    verdicts = await verify_bare(blind, content.answers, pool, any_form=False)
    knows_more = all(verdict.status is Status.SOLVED for verdict in verdicts)
    return _EntryCheck([], "" if knows_more else NOBODY_KNOWS)


OTHER_LABEL = "0"
"""Takes the place of a label, to see whether the verifier reads it."""
