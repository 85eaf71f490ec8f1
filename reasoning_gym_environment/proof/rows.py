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

from ..errors import GenerationError
from ..evaluation.planning import EvaluationSet
from ..problems.held_out import held_out_hashes
from ..problems.suites import built_in, load_suite, question_sha256
from ..records import Fault, Ladder, Problem, Recipe, Status, Verdict
from ..sandbox.pool import TaskPool, generate_with_retry
from ..scoring.grading import verify_in_tags, verify_texts
from ..tasks.catalogue import restore_json_entry
from ..util.progress import with_progress
from ..util.values import group_by, replace_surrogates, shorten
from .entry_relations import Relations, learn_relations
from .row_reading import Row, read_row

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


class RowFinding(NamedTuple):
    """What is wrong with a row.

    Attributes:
        row: its number, from 1.
        kind: a `FaultKind`, or wrong, changed, evaluation, repeat or unreadable.
    """

    row: int
    task: str
    kind: str
    detail: str


class Unchecked(NamedTuple):
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
        reasons = Counter(one.reason for one in self.unchecked)
        parts += [
            f"{count} not checked ({reason})" for reason, count in reasons.most_common()
        ]
        return f"{self.rows} rows: {', '.join(parts) or 'nothing found'}"


SHOWN_KINDS = dict.fromkeys(("false_label", "unanswerable", "ambiguous"), "faulty")
"""Kinds that the summary counts under another name."""


@dataclass(kw_only=True, slots=True)
class Known:
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
    evaluated: EvaluationSet,
) -> CheckedRows:
    """Check rows of NeMo Gym, verl, or any with a recipe or an entry.

    Args:
        rows: objects, or their JSON text.
        ladders: of all tasks.
        evaluated: whose questions no row may ask.
    """
    source = _Source(pool, ladders)
    known = await with_progress([source.known(row) for row in rows], "rows")
    suites = _questions_of_suites()
    unlike = _unlike_fresh([row for row in known if isinstance(row, Known)])
    first: dict[tuple[str, str], int] = {}
    findings: list[RowFinding] = []
    unchecked: list[Unchecked] = []
    for number, row in enumerate(known, start=1):
        if isinstance(row, str):
            findings.append(RowFinding(number, "", "unreadable", row))
            continue
        task = row.recipe.task
        found = list(row.findings)
        reason = row.unchecked
        for kind, detail in row.doubts:
            if (task, kind) in unlike:
                reason = UNLIKE
            else:
                found.append((kind, detail))
        if row.fault is not None:
            found.append((row.fault.kind.value, row.fault.detail))
        found += await _contamination(row, suites, evaluated)
        before = first.setdefault((task, row.question), number)
        if before < number:
            found.append(("repeat", f"asks what row {before} asks"))
        findings += [RowFinding(number, task, *one) for one in found]
        if reason:
            unchecked.append(Unchecked(number, task, reason))
    return CheckedRows(rows=len(rows), findings=findings, unchecked=unchecked)


def _questions_of_suites() -> dict[tuple[str, str], str]:
    """Return the suite of each task and beginning of a question's hash."""
    suites: dict[tuple[str, str], str] = {}
    # The smallest come last, so that an item has the name of its smallest suite.
    for name in reversed(built_in()):
        for recipe, _, digits in load_suite(name).items():
            suites[recipe.task, digits] = name
    return suites


async def _contamination(
    row: Known, suites: Mapping[tuple[str, str], str], evaluated: EvaluationSet
) -> list[tuple[str, str]]:
    """Return whether a row asks what is evaluated."""
    task = row.recipe.task
    suite = suites.get((task, question_sha256(row.question)[:8]))
    if suite is not None:
        return [("evaluation", f"in the suite {suite}")]
    if row.recipe.is_evaluation:
        return [("evaluation", "its seed is never trained on")]
    hashes = held_out_hashes(task, row.question, row.answer)
    if hashes & await evaluated.questions(task):
        return [("evaluation", "in the evaluation set of these settings")]
    return []


def _unlike_fresh(rows: Sequence[Known]) -> set[tuple[str, str]]:
    """Return tasks, with kinds of doubts that most of their rows raise."""
    unlike = set()
    for task, own in group_by(lambda row: row.recipe.task, rows).items():
        kinds = Counter(kind for row in own for kind, _ in row.doubts)
        for kind, doubted in kinds.items():
            if doubted > max(FEW_DOUBTED, len(own) / 2):
                unlike.add((task, kind))
    return unlike


class _Source:
    """What is known of tasks beside the rows: their problems, verifiers and fresh entries."""

    def __init__(self, pool: TaskPool, ladders: Mapping[str, Ladder]) -> None:
        self._pool = pool
        self._ladders = ladders
        self._relations: dict[str, asyncio.Task[Relations]] = {}

    async def known(self, row: Any) -> Known | str:
        """Return what is known of a row, or why it can't be read."""
        try:
            said = read_row(row)
            if said.recipe is not None:
                return await self._known_by_recipe(said, said.recipe)
            if said.entry is not None:
                return await self._known_by_entry(said, said.entry)
        except (GenerationError, ValueError) as error:
            return str(error)
        return "it has neither a recipe nor an entry of reasoning-gym"

    async def _known_by_recipe(self, said: Row, recipe: Recipe) -> Known | str:
        """Compare a row with the problem that its recipe makes."""
        made = await generate_with_retry(self._pool.generate, recipe)
        row = Known(
            recipe=made.recipe,
            question=made.question,
            answer=made.oracle,
            fault=made.fault,
        )
        changes = self._changes(said, recipe.task, made.question)
        other = recipe.library_version
        if changes and other not in (None, made.recipe.library_version):
            return (
                f"its recipe is of reasoning-gym {other}, and the installed "
                f"{made.recipe.library_version} asks another question"
            )
        row.findings += changes
        row.findings += await _wrong_answers(said, made, self._pool)
        return row

    async def _known_by_entry(self, said: Row, entry: Mapping[str, Any]) -> Known | str:
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
        row = Known(
            recipe=Recipe(task=task, seed=0),
            question=question,
            answer=answer,
            fault=fault,
            findings=self._changes(said, task, question),
        )
        origin = await _regenerated(said, question, self._pool)
        if origin is not None:
            row.findings += await _wrong_answers(said, origin, self._pool)
        elif fault is None:
            await self._compare(row, said, entry)
        return row

    def _changes(self, said: Row, task: str, question: str) -> list[tuple[str, str]]:
        """Return where a row asks another question, or names another task, than is known."""
        found = []
        if any(question.strip() not in text for text in said.questions):
            found.append(("changed", f"it should ask {shorten(question)}"))
        # Frameworks also keep other things below `task`.
        others = {*said.tasks} & {*self._ladders} - {task}
        if others:
            found.append(("changed", f"it is of {task}, and names {min(others)}"))
        return found

    async def _compare(self, row: Known, said: Row, entry: Mapping[str, Any]) -> None:
        """Hold an entry against its metadata and its verifier; note what neither confirms."""
        task = row.recipe.task
        relations = await self._relations_of(task)
        whole = {**entry, "question": row.question, "answer": row.answer}
        changed = relations.changed_question(whole)
        row.doubts += [("changed", changed)] if changed else []
        wrong = relations.wrong_answer(whole) if row.answer is not None else ""
        if wrong:
            row.doubts.append(("wrong", wrong))
            return
        row.unchecked = await _verify_entry(row, said, whole, self._pool)
        if row.unchecked == NOBODY_KNOWS and relations.confirms(whole):
            row.unchecked = ""

    async def _relations_of(self, task: str) -> Relations:
        if task not in self._relations:
            learned = learn_relations(self._pool, task, self._ladders[task])
            self._relations[task] = asyncio.create_task(learned)
        return await self._relations[task]


async def _wrong_answers(
    said: Row, problem: Problem, pool: TaskPool
) -> list[tuple[str, str]]:
    """Return which answers and demonstrations of a row don't solve its problem.

    Raises GenerationError if scoring fails on our side.
    """
    verdicts = await verify_in_tags(problem, said.answers, pool)
    pairs = [*zip(said.answers, verdicts, strict=True)]
    shown = await verify_texts(
        problem,
        said.demonstrations,
        pool,
        answer_tolerance=False,
        any_form=True,
    )
    pairs += [
        (answer if answer is not None else text, verdict)
        for text, (answer, verdict) in zip(said.demonstrations, shown, strict=True)
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


async def _regenerated(said: Row, question: str, pool: TaskPool) -> Problem | None:
    """Return the problem that an entry's seed makes; None unless it asks the same question."""
    if said.origin is None:
        return None
    try:
        made = await pool.generate(said.origin)
    except GenerationError:  # the row's parameters may be of another version
        return None
    return made if made.question == question else None


async def _verify_entry(
    row: Known, said: Row, entry: Mapping[str, Any], pool: TaskPool
) -> str:
    """Score an entry's own answer, and doubt it if it is refused.

    Returns:
        Why the answer is not checked; empty if it is.
    """
    try:
        restored = restore_json_entry(entry)
    except ValueError as error:
        return re.split("[:;]", str(error))[
            0
        ]  # what the row could have instead follows
    problem = Problem(
        recipe=row.recipe,
        question=row.question,
        oracle=row.answer,
        entry=pickle.dumps(restored),
    )
    own = await verify_in_tags(problem, [str(row.answer)], pool)
    if own[0].status in NO_VERDICT:
        return f"the default verifier has no verdict ({own[0].status.value})"
    refused = await _wrong_answers(said, problem, pool)
    if refused:
        row.doubts += refused
        return ""
    # With another label, only a verifier that knows more than the label takes the answer.
    relabeled = {**restored, "answer": OTHER_LABEL}
    blind = replace(problem, oracle=OTHER_LABEL, entry=pickle.dumps(relabeled))
    verdicts = await verify_in_tags(blind, said.answers, pool, any_form=False)
    knows_more = all(verdict.status is Status.SOLVED for verdict in verdicts)
    return "" if knows_more else NOBODY_KNOWS


OTHER_LABEL = "0"
"""Takes the place of a label, to see whether the verifier reads it."""
