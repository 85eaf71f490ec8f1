"""What the items of a task and its levels show: made again, paid, different, not degenerate."""

import time
from dataclasses import dataclass
from typing import Any

import pytest

from docs.difficulty_levels import faults, prove_ladders
from reasoning_gym_environment.errors import GenerationError, GenerationTimeoutError
from reasoning_gym_environment.proof.ladder_proof import (
    DRAWS,
    LevelProof,
    prove_level,
)
from reasoning_gym_environment.proof.levels import have_same_questions, level_faults
from reasoning_gym_environment.records import Problem, Recipe, Status, Verdict
from reasoning_gym_environment.sandbox._protocol import Inspection
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.extraction import AnswerFormat
from reasoning_gym_environment.tasks.ladders import TaskLadder

ITEMS = 40
"""Of a level, enough to tell that its questions are those of another."""


def proof(level: int, question: str, **other: Any) -> LevelProof:
    values: dict[str, Any] = {
        "task": "gcd",
        "level": level,
        "parameters": {"n": level},
        "questions": {number: f"{question} {number}" for number in range(ITEMS)},
    }
    return LevelProof(**values | other)


def test_levels_that_differ_have_no_faults() -> None:
    easy, hard = proof(0, "easy", seconds=[0.1, 0.3]), proof(1, "hard")
    assert faults([easy, hard]) == []
    assert easy.mean_seconds == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("items", "changed", "same"),
    [
        (0, 0, False),
        (11, 0, False),  # too few to tell
        (ITEMS, 0, True),
        (ITEMS, 2, False),
        (200, 0, True),
        (200, 9, True),
        (200, 15, False),
    ],
)
def test_levels_are_the_same_only_where_their_items_show_it(
    items: int, changed: int, same: bool
) -> None:
    questions = {number: f"easy {number}" for number in range(items)}
    others = {number: f"hard {number}" for number in range(changed)}
    lower = proof(0, "", questions=questions)
    upper = proof(1, "", questions=questions | others)
    assert have_same_questions(lower, upper) is same


@pytest.mark.parametrize(
    ("upper", "fault"),
    [
        (proof(1, "easy"), "gcd level 1: nearly the questions of level 0"),
        (
            proof(1, "hard", parameters={"n": 0}),
            "gcd level 1: the parameters of level 0",
        ),
        (
            proof(1, "hard", characters=35_000 * ITEMS),
            "gcd level 1: questions of 35000 characters",
        ),
    ],
)
def test_every_fault_is_named(upper: LevelProof, fault: str) -> None:
    assert faults([proof(0, "easy"), upper]) == [fault]


MANY = [str(number) for number in range(DRAWS)]
LONG = [f"a sentence of several words, number {number}" for number in range(DRAWS)]


@pytest.mark.parametrize(
    ("questions", "answers", "fault"),
    [
        (MANY, MANY, ""),
        (MANY, ["Yes", "No"] * 100, ""),
        (MANY, ["Yes"] * 128 + ["No"] * 72, ""),
        (MANY, ["Yes"] * 132 + ["No"] * 68, "'Yes' answers 66% of the items"),
        (MANY, ["Yes"] * 200, "'Yes' answers 100% of the items"),
        (MANY, ["1"] * 170 + MANY[:30], "'1' answers 86% of the items"),
        (MANY, ["aunt", "niece", "mother", "son"] * 50, ""),
        (MANY, LONG, ""),
        (MANY, LONG[:9] * 22 + LONG[:2], "only 9 distinct answers of 200"),
        (MANY, [None] * 200, ""),
        (MANY, ["1"] * 2 + [None] * 198, ""),
        (MANY, ["1"] * 120 + [None] * 80, "'1' answers 100% of the items"),
        (MANY[:49] * 4 + MANY[:4], [None] * 200, "only 49 distinct questions of 200"),
    ],
)
def test_a_level_is_degenerate_by_its_questions_and_answers(
    questions: list[str], answers: list[str | None], fault: str
) -> None:
    assert len(questions) == len(answers) == DRAWS
    found = level_faults(questions, answers)
    assert [text.startswith(fault) for text in found] == ([True] if fault else [])


@pytest.mark.asyncio(loop_scope="session")
async def test_a_ladder_is_proved_by_its_items(pool: TaskPool) -> None:
    levels = ({"max_value": 9}, {"max_value": 99}, {"max_value": 99}, {"max_value": 0})
    ladder = TaskLadder(levels=levels, origin="own", reason="for this test")
    [proofs] = await prove_ladders(pool, {"gcd": ladder}, items=ITEMS, at_once=1)
    drawn = [len(of_level.questions) for of_level in proofs]
    assert drawn == [ITEMS, ITEMS, ITEMS, 0]
    found = faults(proofs)
    assert "gcd level 2: the parameters of level 1" in found
    assert "gcd level 2: nearly the questions of level 1" in found
    assert any(fault.startswith("gcd level 3: gcd: AssertionError") for fault in found)
    assert not any(
        fault.startswith(("gcd level 0:", "gcd level 1:")) for fault in found
    )


@dataclass(kw_only=True)
class Pool:
    """A pool whose items, entries and verdicts are given."""

    question: str = "?"
    oracle: str | None = "1"
    entry: bytes = b""
    content: str = ""
    score: float = 1.0
    error: GenerationError | None = None
    detail: str = ""
    answer_format: AnswerFormat = "tags"

    async def generate(self, recipe: Recipe) -> Problem:
        if self.error:
            raise self.error
        question = f"{self.question} {recipe.seed}"
        return Problem(
            recipe=recipe, question=question, oracle=self.oracle, entry=self.entry
        )

    async def inspect(self, recipe: Recipe) -> Inspection:
        return Inspection(content=self.content, json_changes="", memory=0)

    async def verify(self, problem: Problem, answers: list[str]) -> list[Verdict]:
        status = Status.SOLVED if self.score == 1.0 else Status.WRONG
        errors = int("raised" in self.detail)
        verdict = Verdict(
            score=self.score, status=status, detail=self.detail, errors=errors
        )
        return [verdict] * len(answers)


@pytest.mark.parametrize(
    ("pool", "other", "kinds"),
    [
        (Pool(), Pool(), []),
        (Pool(), Pool(question="!"), ["reproducible differs"]),
        (Pool(entry=b"1", content="x"), Pool(entry=b"2", content="x"), []),
        (
            Pool(entry=b"1", content="x"),
            Pool(entry=b"2", content="y"),
            ["reproducible differs"],
        ),
        (Pool(score=0.9), Pool(), ["solvable oracle"]),
        (Pool(), Pool(score=0.0), ["contained state"]),
        (Pool(), Pool(error=GenerationError("it fails")), ["reproducible differs"]),
        (
            Pool(score=0.0, detail="raised PermissionError: [Errno 13]"),
            Pool(),
            ["contained forbidden", "solvable raises"],
        ),
        (Pool(error=GenerationTimeoutError("no reply")), Pool(), ["bounded late"]),
    ],
)
async def test_what_an_item_shows(pool: Pool, other: Pool, kinds: list[str]) -> None:
    found = LevelProof(task="gcd", level=None, parameters={})
    await prove_level(pool, found, items=3, compared=2, second_pool=other)
    assert [f"{one.check} {one.kind}" for one in found.findings] == kinds
    assert found.tried == 3
    assert len(found.training) == (0 if pool.error else 2)


async def test_an_item_that_only_its_verifier_knows_is_not_checked() -> None:
    found = LevelProof(task="gcd", level=None, parameters={})
    pool = Pool(oracle=None)
    await prove_level(pool, found, items=2, compared=2, second_pool=pool)
    [finding] = found.weighty
    assert (finding.check, finding.verdict) == ("solvable", "not_checked")
    assert finding.items == 2


async def test_drawing_ends_at_the_deadline_and_goes_on_from_there() -> None:
    found = LevelProof(task="gcd", level=0, parameters={})
    await prove_level(Pool(), found, items=4, deadline=time.monotonic() - 1)
    assert found.tried == 0
    await prove_level(Pool(), found, items=2)
    await prove_level(Pool(), found, items=4)
    assert [*found.questions] == [0, 1, 2, 3]
    assert len(set(found.questions.values())) == 4
