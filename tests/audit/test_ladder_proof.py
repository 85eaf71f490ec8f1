"""Faults that the proof of a ladder finds."""

from typing import Any

import pytest

from reasoning_gym_environment.audit.ladder_proof import (
    LevelProof,
    changed_share,
    faults,
    prove_ladders,
    prove_level,
)
from reasoning_gym_environment.errors import GenerationError, WorkerTimeoutError
from reasoning_gym_environment.records import Problem, Recipe, Status, Verdict
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.ladders import TaskLadder

RIGHT = Verdict(score=1.0, status=Status.SOLVED)
WRONG = Verdict(score=0.0, status=Status.WRONG)


def problem(seed: int, question: str) -> Problem:
    return Problem(recipe=Recipe(task="gcd", seed=seed), question=question, oracle="1", entry=b"")


def proof(level: int, question: str, **other: Any) -> LevelProof:
    values: dict[str, Any] = {
        "task": "gcd",
        "level": level,
        "parameters": {"n": level},
        "problems": (problem(1, question), problem(2, "the same")),
        "verdicts": (RIGHT, RIGHT),
        "errors": (),
        "seconds": (0.1, 0.3),
    }
    return LevelProof(**values | other)


def test_levels_that_differ_have_no_faults() -> None:
    easy, hard = proof(0, "easy"), proof(1, "hard")
    assert faults([easy, hard]) == []
    assert changed_share(easy, hard) == 0.5
    assert easy.mean_seconds == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("upper", "fault"),
    [
        (proof(1, "easy"), "gcd levels 0 and 1: nearly equal questions"),
        (proof(1, "hard", parameters={"n": 0}), "gcd levels 0 and 1: equal parameters"),
        (proof(1, "hard", errors=["gcd: no reply"]), "gcd level 1: gcd: no reply"),
        (
            proof(1, "hard", verdicts=[RIGHT, WRONG]),
            "gcd level 1: the answer of an item is wrong 0.0",
        ),
        (proof(1, "?" * 70_000), "gcd level 1: questions of 35004 characters"),
    ],
)
def test_every_fault_is_named(upper: LevelProof, fault: str) -> None:
    assert faults([proof(0, "easy"), upper]) == [fault]


@pytest.mark.asyncio(loop_scope="session")
async def test_a_ladder_is_proved_by_its_items(pool: TaskPool) -> None:
    levels = ({"max_value": 9}, {"max_value": 99}, {"max_value": 99}, {"max_value": 0})
    ladder = TaskLadder(levels=levels, origin="own", reason="for this test")
    [proofs] = await prove_ladders(pool, {"gcd": ladder}, items=2, at_once=1)
    assert [len(of_level.questions) for of_level in proofs] == [2, 2, 2, 0]
    found = faults(proofs)
    assert "gcd levels 1 and 2: equal parameters" in found
    assert "gcd levels 1 and 2: nearly equal questions" in found
    assert sum("gcd level 3: gcd: AssertionError" in fault for fault in found) == 2
    assert not any(fault.startswith(("gcd level 0:", "gcd levels 0")) for fault in found)


class Slow:
    """A pool in which every item is late."""

    async def generate(self, recipe: Recipe) -> Problem:
        raise GenerationError(f"{recipe.task}: no reply") from WorkerTimeoutError("no reply")


@pytest.mark.parametrize(("stop_at_failure", "tried"), [(False, 3), (True, 1)])
async def test_a_late_item_is_counted_apart_and_can_end_the_proof(
    stop_at_failure: bool, tried: int
) -> None:
    late = await prove_level(Slow(), "gcd", 0, {}, items=3, stop_at_failure=stop_at_failure)
    assert (late.problems, late.errors) == ([], [])
    assert late.late == ["gcd: no reply"] * tried
    assert faults([late]) == ["gcd level 0: gcd: no reply"] * tried
