"""One group graded: answers extracted and verified, verdicts shaped into rewards."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

from ..records import (
    ATROPOS_SOLVED_SCORE,
    FORMAT_FAILURES,
    Attempt,
    Completion,
    GroupResult,
    Problem,
    Reward,
    Signal,
    Status,
    Verdict,
)
from ..tasks.facts import ladder_heights
from ..util.concurrency import run_in_thread_if_large
from .characters import plain_answer
from .extraction import AnswerFormat, extract_answer, shortest_reply
from .notation import readable_form


def length_factor(length: int, max_length: int, start: float) -> float:
    """Return the factor of the length penalty.

    Args:
        length: prompt and completion tokens.
        max_length: the length at which the factor is 0.
        start: fraction of `max_length`, in [0, 1), up to which it is 1.

    Example:
        >>> length_factor(875, max_length=1000, start=0.75)
        0.5
    """
    free = start * max_length
    if length <= free:
        return 1.0
    return max(0.0, (max_length - length) / (max_length - free))


logger = logging.getLogger(__name__)


ScoreMode = Literal["partial", "library", "threshold", "binary"]
"""How partial credit enters the reward."""

SCORING_VERSION = 2
"""Of the rules by which an answer is solved and paid; rows without one have version 1."""

ANY_FORM_IS_PAID = "a right answer earns full credit however it is written"
"""Why `answer_tolerance`, which earlier versions had, has no effect."""


def _credit(mode: ScoreMode, verdict: Verdict) -> float | None:
    """Return what an answer earns before its partial credit is looked at."""
    return verdict.score if mode == "library" else verdict.credit


def apply_mode(mode: ScoreMode, score: float, threshold: float) -> float:
    """Return the score: as it is, 0 below the threshold, or 1 only at full credit."""
    if mode == "binary":
        return float(score >= 1.0)
    if mode == "threshold" and score < threshold:
        return 0.0
    return score


def shape_rewards(
    verdicts: Sequence[Verdict],
    lengths: Sequence[int],
    *,
    max_length: int,
    penalty_start: float,
    mode: ScoreMode = "partial",
    threshold: float = ATROPOS_SOLVED_SCORE,
) -> list[Reward]:
    """Return the rewards of one group, in order.

    The length penalty applies only if every score reaches the threshold: among right answers the
    shorter one is better; a wrong short answer is not. An unscored rollout gets the mean of the
    others, and the trainer is told to drop its advantage. The group's mean stays as it is; its
    standard deviation falls, so a trainer that divides by it gives the others larger advantages.
    """
    credits = [_credit(mode, verdict) for verdict in verdicts]
    penalized = all(credit is not None and credit >= threshold for credit in credits)
    known_scores = [
        apply_mode(mode, credit, threshold) for credit in credits if credit is not None
    ]
    # exact, so that equal scores stay equal: such a group has no signal
    neutral = statistics.mean(known_scores) if known_scores else 0.0
    rewards = []
    for credit, length in zip(credits, lengths, strict=True):
        factor = length_factor(length, max_length, penalty_start) if penalized else 1.0
        score = neutral
        if credit is not None:
            score = apply_mode(mode, credit, threshold)
        rewards.append(Reward(value=score * factor, length_factor=factor))
    return rewards


def signal(verdicts: Sequence[Verdict]) -> Signal | None:
    """Return the training signal of a group; None if no rollout is scored."""
    solved = {
        v.status is Status.SOLVED for v in verdicts if v.status is not Status.UNSCORED
    }
    if not solved:
        return None
    if len(solved) == 2:
        return Signal.MIXED
    return Signal.ALL_SOLVED if solved.pop() else Signal.NONE_SOLVED


class Verifier(Protocol):
    """The part of a task pool that grading needs."""

    async def verify(
        self, problem: Problem, answers: Sequence[str]
    ) -> list[Verdict]: ...


class FormatVerifier(Verifier, Protocol):
    """A verifier that knows where completions have their answer, as a task pool does."""

    @property
    def answer_format(self) -> AnswerFormat: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoringSettings:
    """All settings that a score depends on, named as the options; every stored row carries them.

    Without a `solved_threshold`, tasks have their own, and the length penalty has upstream's.
    """

    max_token_length: int
    answer_format: AnswerFormat = "tags"
    score_mode: ScoreMode = "partial"
    solved_threshold: float | None = None
    length_penalty_start: float = 0.75
    verify_timeout: float = 5.0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON under the settings' names, with the version of the rules."""
        return {"scoring_version": SCORING_VERSION, **asdict(self)}


class Grade(NamedTuple):
    """The answer of one text, its verdict and its reward."""

    answer: str | None
    verdict: Verdict
    reward: Reward


async def grade(
    problem: Problem,
    completions: Sequence[Completion],
    verifier: Verifier,
    settings: ScoringSettings,
) -> GroupResult:
    """Score a group of completions, in order."""
    texts = [completion.text for completion in completions]
    lengths = [completion.length for completion in completions]
    grades = await grade_texts(problem, texts, lengths, verifier, settings)
    result = GroupResult(
        problem=problem,
        attempts=tuple(
            Attempt(
                completion=completion,
                answer=answer,
                verdict=verdict,
                reward=reward,
            )
            for completion, (answer, verdict, reward) in zip(
                completions, grades, strict=True
            )
        ),
    )
    log_group(result)
    return result


async def grade_texts(
    problem: Problem,
    texts: Sequence[str],
    lengths: Sequence[int],
    verifier: Verifier,
    settings: ScoringSettings,
) -> list[Grade]:
    """Score the texts of a group, fresh or stored.

    Args:
        lengths: tokens of each text and its prompt.
    """
    judged = await verify_texts(
        problem,
        texts,
        verifier,
        any_form=settings.solved_threshold is None,
        answer_format=settings.answer_format,
    )
    rewards = shape_rewards(
        [verdict for _, verdict in judged],
        lengths,
        max_length=settings.max_token_length,
        penalty_start=settings.length_penalty_start,
        mode=settings.score_mode,
        threshold=settings.solved_threshold or ATROPOS_SOLVED_SCORE,
    )
    return [
        Grade(answer, verdict, reward)
        for (answer, verdict), reward in zip(judged, rewards, strict=True)
    ]


async def verify_texts(
    problem: Problem,
    texts: Sequence[str],
    verifier: Verifier,
    *,
    any_form: bool,
    answer_format: AnswerFormat,
) -> list[tuple[str | None, Verdict]]:
    """Extract and verify the answer of each text, in order.

    Args:
        any_form: whether right answers in another form are solved and paid, whatever the verifier
            gives them.
    """
    extractions = await run_in_thread_if_large(
        lambda: [extract_answer(text, answer_format) for text in texts],
        tokens=_tokens(texts),
    )
    given = [e.answer for e in extractions if e.answer is not None]
    answers = await run_in_thread_if_large(
        lambda: _plain_answers(problem.recipe.task, given), tokens=_tokens(given)
    )
    verdicts = await verifier.verify(problem, answers)
    if any_form:
        verdicts = await _solve_other_forms(problem, answers, verdicts, verifier)
    next_verdicts = iter(verdicts)
    judged: list[tuple[str | None, Verdict]] = []
    for extraction in extractions:
        if extraction.failure:
            failed = Verdict(
                score=0.0, status=extraction.failure, detail=extraction.detail
            )
            judged.append((None, failed))
        else:
            judged.append((extraction.answer, next(next_verdicts)))
    return judged


async def verify_bare(
    problem: Problem,
    answers: Sequence[str],
    verifier: FormatVerifier,
    *,
    any_form: bool = True,
) -> list[Verdict]:
    """Verify bare answers as training does the completions that give them, in order.

    An answer with blanks around it, or with a tag in it, has the verdict of what is extracted; in
    boxes, one with a lone brace too.

    Args:
        any_form: as of `verify_texts`; training does so without a `solved_threshold`.
    """
    answer_format = verifier.answer_format
    judged = await verify_texts(
        problem,
        [shortest_reply(answer, answer_format) for answer in answers],
        verifier,
        any_form=any_form,
        answer_format=answer_format,
    )
    return [verdict for _, verdict in judged]


def _plain_answers(task: str, answers: Sequence[str]) -> list[str]:
    """Return answers in plain characters; those to a user's task as they are."""
    if task not in ladder_heights():
        return [*answers]
    return [plain_answer(task, answer) for answer in answers]


def _tokens(texts: Sequence[str]) -> int:
    """Estimate the number of tokens."""
    return sum(map(len, texts)) // 4


async def _solve_other_forms(
    problem: Problem,
    answers: Sequence[str],
    verdicts: Sequence[Verdict],
    verifier: Verifier,
) -> list[Verdict]:
    """Return the verdicts, solved where an answer is right but for its form.

    Such an answer earns what the verifier gives it in its own notation: full credit, but at the
    bound of a task. A verifier that refuses the label itself is trusted: the label is broken.
    """
    task = problem.recipe.task
    oracle = problem.oracle

    def form_of(answer: str, verdict: Verdict) -> str:
        judged = (Status.WRONG, Status.REJECTED, Status.VERIFIER_ERROR, Status.SOLVED)
        if verdict.status not in judged or verdict.score == 1.0:
            return answer
        return readable_form(task, problem.question, answer, oracle)

    forms = await run_in_thread_if_large(
        lambda: [*map(form_of, answers, verdicts)], tokens=_tokens(answers)
    )
    changed = {
        form for answer, form in zip(answers, forms, strict=True) if form != answer
    }
    new_forms = sorted(changed - {oracle})
    verdicts_by_form = dict(
        zip(new_forms, await verifier.verify(problem, new_forms), strict=True)
    )
    judged = []
    for answer, form, verdict in zip(answers, forms, verdicts, strict=True):
        if form == answer:
            judged.append(verdict)
            continue
        if form == oracle:
            credit = 1.0
        elif verdicts_by_form[form].status is Status.SOLVED:
            credit = verdicts_by_form[form].score or 0.0
        else:
            judged.append(verdict)
            continue
        judged.append(
            replace(
                verdict,
                status=Status.SOLVED,
                form_score=max(credit, verdict.score or 0.0),
                detail="right, in another form",
            )
        )
    return judged


def log_group(group: GroupResult) -> None:
    """Log the scores of a group, its format violations and the forms of each attempt at DEBUG."""
    task = group.problem.recipe.task
    mean = sum(group.rewards) / len(group.rewards)
    logger.debug(
        "%s: %d of %d solved, mean reward %.3f",
        task,
        group.solved,
        len(group.attempts),
        mean,
    )
    for attempt in group.attempts:
        verdict = attempt.verdict
        if verdict.status in FORMAT_FAILURES:
            logger.debug("%s: format violation: %s", task, verdict.status.value)
        logger.debug(
            "%s: answer %.200r: %s; raw form %s, tagged form %s, reward %.3f",
            task,
            attempt.answer,
            verdict.status.value,
            verdict.raw_score,
            verdict.tagged_score,
            attempt.reward.value,
        )
