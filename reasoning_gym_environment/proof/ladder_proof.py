"""The proof of items and levels: they can be made again, their answers are right, levels differ."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import GenerationError, GenerationTimeoutError, WorkerOutOfMemoryError
from ..problems.identity import question_hash
from ..problems.seeds import evaluation_seed
from ..problems.stream import skip_faulty
from ..records import Problem, Recipe, Status, Verdict, recipe_text
from ..sandbox.pool import Generate, TaskPool
from ..scoring.grading import verify_bare
from ..tasks.ladders import TaskLadder
from ..tasks.modules import Declaration
from ..tasks.recipes import read_recipe
from ..util.values import shorten
from .findings import Finding, FindingVerdict, shown_example, shown_verdict
from .labels import odd_character, written_forms

DRAWS = 200
"""Draws of a level that show whether it is degenerate."""

DRAWS_SEED = 7
"""Seed of the items that are drawn."""

FEWEST_LATE = 5
MOST_LATE = 0.2
"""A level is given up when at least FEWEST_LATE items, more than MOST_LATE of all, are late."""

LATE_SHARE = 0.1
"""Share of a level's items that may be late, or exceed the memory; a warning names it."""

LONG_ANSWER = 40
"""Characters; of a longer answer, a proof keeps the beginning and a hash."""

CONTEXT_CHARACTERS = 10
"""Shown before the first difference of two texts."""

KILLED = (Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.CRASHED)
"""Statuses of an answer that cost its process."""


def level_items(items: int) -> int:
    """Return the number of items to try of each level, by that of the default configuration."""
    return math.ceil(items / 10)


@dataclass(kw_only=True, slots=True)
class LevelProof:
    """What the items drawn at one level of a task have shown; drawing can go on later.

    Attributes:
        level: None means the default configuration.
        tried: draws so far, with those that failed.
        questions, answers: by number of the draw; questions are hashes, long answers end in one.
        training: questions and answers of the training items with the neighboring seeds.
        characters, answer_characters: of all questions, and of all answers.
        seconds, verdict_seconds: to make each item, and to score its own answer.
        without_credit: items whose own answer has no full credit.
    """

    task: str
    level: int | None
    parameters: Mapping[str, Any]
    tried: int = 0
    questions: dict[int, str] = field(default_factory=dict)
    answers: dict[int, str | None] = field(default_factory=dict)
    training: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    characters: int = 0
    answer_characters: int = 0
    seconds: list[float] = field(default_factory=list)
    verdict_seconds: list[float] = field(default_factory=list)
    without_credit: int = 0
    findings: list[Finding] = field(default_factory=list)

    def note(
        self,
        check: str,
        kind: str,
        detail: str,
        example: str = "",
        verdict: FindingVerdict = "failed",
    ) -> None:
        """Note what one more item shows; one finding stands for all items of its kind."""
        for place, finding in enumerate(self.findings):
            if finding.kind == kind:
                self.findings[place] = replace(finding, items=finding.items + 1)
                return
        self.findings.append(
            Finding(
                check=check,
                kind=kind,
                detail=detail,
                example=example,
                level=self.level,
                verdict=verdict,
            )
        )

    def add_item(self, number: int, problem: Problem, seconds: float) -> None:
        """Keep what a draw has made, and the seconds that it took."""
        self.seconds.append(seconds)
        self.questions[number], self.answers[number] = _compact(problem)
        self.characters += len(problem.question)
        self.answer_characters += len(problem.oracle or "")

    def add_own_verdict(self, verdict: Verdict) -> None:
        """Keep what the verdict on an item's own answer took, and whether it has full credit."""
        self.verdict_seconds.append(verdict.seconds)
        if verdict.score != 1.0:
            self.without_credit += 1

    def add_training_item(self, number: int, problem: Problem) -> None:
        """Keep the training item beside a draw."""
        self.training[number] = _compact(problem)

    def end_draw(self) -> None:
        """Count a draw, whether or not it has made an item."""
        self.tried += 1

    @property
    def weighty(self) -> list[Finding]:
        """What its items show, a warning where a few of them may do so."""
        few = max(2, LATE_SHARE * self.tried)
        weighty = []
        for finding in self.findings:
            if finding.kind in ("late", "memory"):
                share = finding.items / max(1, self.tried)
                finding = replace(
                    finding,
                    detail=f"{finding.detail}, of {share:.0%} of {self.tried} items",
                    verdict="warning" if finding.items <= few else "failed",
                )
            weighty.append(finding)
        return weighty

    @property
    def is_given_up(self) -> bool:
        """Whether too many of its items are late to draw more."""
        late = sum(finding.items for finding in self.findings if finding.kind == "late")
        return late >= FEWEST_LATE and late > MOST_LATE * self.tried

    @property
    def mean_seconds(self) -> float:
        return sum(self.seconds) / max(1, len(self.seconds))

    @property
    def mean_characters(self) -> float:
        return self.characters / max(1, len(self.questions))

    @property
    def mean_answer_characters(self) -> float:
        return self.answer_characters / max(1, len(self.answers))


async def prove_level(
    pool: TaskPool,
    proof: LevelProof,
    *,
    items: int,
    compared: int = 0,
    second_pool: TaskPool | None = None,
    shared: TaskPool | None = None,
    declared: Declaration | None = None,
    deadline: float = math.inf,
    now: Callable[[], float] = time.monotonic,
    seed: int = DRAWS_SEED,
) -> None:
    """Draw the evaluation items up to number `items`, in sequence, and score their own answers.

    Args:
        compared: the first so many are also made from their stored recipes in the second pool, and
            beside each a training item.
        shared: scores own answers in one process, for a verifier that keeps nothing.
        declared: what an own task says of itself; None for the library's.
        deadline: time after which no other item is drawn, by the clock `now`.
        seed: of the evaluation items.
    """
    # The faults of the library's items are known; those of an own task are to be found.
    generate = skip_faulty(pool.generate, Counter(), skip=declared is None)
    while proof.tried < items and not proof.is_given_up and now() < deadline:
        number = proof.tried
        recipe = Recipe(
            task=proof.task,
            seed=evaluation_seed(seed, proof.task, number),
            level=proof.level,
            parameters=proof.parameters,
        )
        started = time.perf_counter()
        problem = await _make(proof, generate, recipe)
        if problem:
            proof.add_item(number, problem, time.perf_counter() - started)
            scorers = [pool] if shared is None else [shared, pool]
            right = await _score_own_answer(proof, scorers, problem, declared)
            if number < compared and second_pool is not None:
                try:
                    await _compare(proof, pool, second_pool, problem, right=right)
                except GenerationError as error:
                    proof.note("reproducible", "differs", str(error), _place(recipe))
        if number < compared:
            twin = replace(recipe, seed=recipe.seed ^ 1)  # the lowest bit is the split
            problem = await _make(proof, generate, twin)
            if problem:
                proof.add_training_item(number, problem)
        proof.end_draw()


def _place(recipe: Recipe) -> str:
    """Return which item a recipe makes, for one that has no question to show."""
    level = "" if recipe.level is None else f"level {recipe.level}, "
    return f"{level}seed {recipe.seed}"


def _compact(problem: Problem) -> tuple[str, str | None]:
    """Return a problem's question as a hash, and its answer, with a hash if it is long."""
    question = question_hash(problem.question).hex()[:16]
    answer = problem.oracle
    if answer is not None and len(answer) > LONG_ANSWER:
        answer = f"{answer[:24]}…{question_hash(answer).hex()[:16]}"
    return question, answer


async def _make(
    proof: LevelProof, generate: Generate, recipe: Recipe
) -> Problem | None:
    """Make a problem; note the failure and return None if it can't be made."""
    try:
        return await generate(recipe)
    except GenerationTimeoutError as error:
        proof.note("bounded", "late", str(error), _place(recipe))
    except GenerationError as error:
        check = "reproducible" if proof.level is None else "levels"
        kind = "generation"
        if isinstance(error.__context__, WorkerOutOfMemoryError):
            check = "bounded"
            kind = "memory"
        proof.note(check, kind, str(error), _place(recipe))
    return None


async def _score_own_answer(
    proof: LevelProof,
    scorers: Sequence[TaskPool],
    problem: Problem,
    declared: Declaration | None,
) -> bool:
    """Score a problem's own answer as a completion; return whether it has full credit.

    That of an own task is also scored as a model would write it, and compared with its solver's.

    Args:
        scorers: the last one counts where the first one finds the answer wrong.
    """
    pool = scorers[-1]
    answer = problem.oracle
    if answer is None:
        proof.note(
            "solvable",
            "no oracle",
            "an item has no answer of its own: nothing shows that it can be solved",
            shorten(problem.question),
            verdict="not_checked",
        )
        return False
    if not answer.strip():
        proof.note(
            "solvable",
            "empty oracle",
            "an answer is empty: it can't be given",
            shorten(problem.question),
        )
    for scorer in scorers:
        [verdict] = await verify_bare(problem, [answer], scorer)
        if verdict.score == 1.0:
            break
    if verdict.status is Status.UNSCORED:  # on our side: it says nothing of the task
        return False
    proof.add_own_verdict(verdict)
    right = _judge_own(proof, verdict, shown_example(problem, answer, verdict))
    if right and declared is not None:
        await _score_written_forms(proof, pool, problem, answer)
    if declared is not None and declared.solve:
        await _compare_with_solver(proof, pool, problem)
    return right


async def _score_written_forms(
    proof: LevelProof, pool: TaskPool, problem: Problem, answer: str
) -> None:
    """Note if an answer earns less as a model would write it."""
    forms = written_forms(answer)
    verdicts = await verify_bare(problem, [*forms.values()], pool)
    for (kind, text), verdict in zip(forms.items(), verdicts, strict=True):
        if is_refused(verdict):
            odd = odd_character(answer, text)
            named = f" ({odd})" if odd else ""
            proof.note(
                "solvable",
                kind,
                f"an item's own answer has {kind}{named}: without, it is {shown_verdict(verdict)}",
                shown_example(problem, text, verdict),
            )


async def _compare_with_solver(
    proof: LevelProof, pool: TaskPool, problem: Problem
) -> None:
    """Note if the task's own solver has another answer than the label."""
    try:
        answer = await pool.second_answer(problem.recipe)
    except GenerationError as error:
        proof.note(
            "solvable", "solver", f"solve fails: {error}", shorten(problem.question)
        )
        return
    [verdict] = await verify_bare(problem, [answer], pool)
    if is_refused(verdict):
        proof.note(
            "solvable",
            "solver",
            f"solve has another answer than the label: it is {shown_verdict(verdict)}",
            shown_example(problem, answer, verdict),
        )


def is_refused(verdict: Verdict) -> bool:
    """Return whether a right answer has no full credit, and not for a failure on our side."""
    return verdict.score != 1.0 and verdict.status is not Status.UNSCORED


def _judge_own(proof: LevelProof, verdict: Verdict, example: str) -> bool:
    """Note what the verdict on an item's own answer shows; return whether it has full credit."""
    verdict_text = shown_verdict(verdict)
    if "PermissionError" in verdict.detail:
        proof.note(
            "contained",
            "forbidden",
            f"the verifier does what it may not: {verdict_text}",
            example,
        )
    if verdict.status in KILLED:
        proof.note(
            "bounded",
            "killed",
            f"scoring an item's own answer ends in {verdict_text}",
            example,
        )
    if verdict.errors:
        proof.note(
            "solvable", "raises", f"an item's own answer: {verdict_text}", example
        )
    if verdict.score != 1.0 and not verdict.errors:
        proof.note(
            "solvable", "oracle", f"an item's own answer is {verdict_text}", example
        )
    return verdict.score == 1.0


async def _compare(
    proof: LevelProof,
    pool: TaskPool,
    second_pool: TaskPool,
    problem: Problem,
    *,
    right: bool,
) -> None:
    """Make a problem again from its stored recipe in the second pool; score its answer there."""
    text = recipe_text(problem.recipe)
    remade = await second_pool.generate(read_recipe(json.loads(text)))
    difference = await find_difference(pool, second_pool, problem, remade)
    if difference:
        proof.note("reproducible", "differs", *difference)
    elif right and problem.oracle is not None:
        [verdict] = await verify_bare(remade, [problem.oracle], second_pool)
        if is_refused(verdict):
            [alone] = await verify_bare(remade, [problem.oracle], pool)
            verdict_text = shown_verdict(verdict)
            example = shown_example(problem, problem.oracle, verdict)
            if alone.score == 1.0:
                proof.note(
                    "contained",
                    "state",
                    f"an answer scored before it makes it {verdict_text}",
                    example,
                )
            else:
                proof.note(
                    "solvable",
                    "round trip",
                    f"made from its stored recipe: {verdict_text}",
                    example,
                )


async def find_difference(
    pool: TaskPool,
    second_pool: TaskPool,
    problem: Problem,
    remade: Problem,
) -> tuple[str, str] | None:
    """Return what differs between a problem and the same one of another process, and an example."""
    subject = "question"
    text = problem.question
    remade_text = remade.question
    if text == remade_text:
        subject = "answer"
        text = problem.oracle or ""
        remade_text = remade.oracle or ""
    if text == remade_text:
        if remade.entry == problem.entry:
            return None
        recipe = problem.recipe  # equal entries may have different pickles
        ours, theirs = await asyncio.gather(
            pool.inspect(recipe), second_pool.inspect(recipe)
        )
        subject = "entry"
        text = ours.content
        remade_text = theirs.content
    if text == remade_text:
        return None
    repeated = await pool.generate(problem.recipe)
    is_repeatable = (
        repeated.question == problem.question and repeated.oracle == problem.oracle
    )
    why = (
        "in a process with another hash seed"
        if is_repeatable
        else "from one time to the next"
    )
    pairs = enumerate(zip(text, remade_text, strict=False))
    begin = max(
        0, next((place for place, (a, b) in pairs if a != b), 0) - CONTEXT_CHARACTERS
    )
    excerpts = [shorten(excerpt[begin:]) for excerpt in (text, remade_text)]
    return f"the {subject} differs {why}", " and ".join(excerpts)


def level_proofs(task: str, ladder: TaskLadder) -> list[LevelProof]:
    """Return the proofs of a ladder's levels, without items yet."""
    return [
        LevelProof(task=task, level=level, parameters=parameters)
        for level, parameters in enumerate(ladder.levels)
    ]
