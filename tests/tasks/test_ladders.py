"""The ladders of all tasks: how they are built, and the proof of their levels."""

import json
from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from docs.difficulty_levels import (
    LONGER_QUESTIONS,
    RISES_BY,
    described,
    faults,
    prove_ladders,
    read_table,
)
from reasoning_gym_environment.proof.ladder_proof import DRAWS
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.facts import all_level_floors, level_floors
from reasoning_gym_environment.tasks.ladders import (
    OWN_LADDERS,
    REPAIRS,
    TaskLadder,
    curriculum_levels,
    ladder_of,
    levels_from,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),  # the library's own, at its import
]

HEIGHTS = Path(__file__).parents[2] / "research" / "ladder_heights.json"
MOST_SINGLE_LEVELS = 5


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ladders(pool: TaskPool) -> dict[str, TaskLadder]:
    return await pool.ladders()


def ends(ladder: TaskLadder) -> TaskLadder:
    """Return a ladder of the easiest and the hardest level."""
    levels = dict.fromkeys((0, len(ladder.levels) - 1))
    return TaskLadder(
        levels=tuple(ladder.levels[n] for n in levels), origin=ladder.origin
    )


async def test_every_task_has_a_ladder(
    ladders: dict[str, TaskLadder], all_tasks: list[str]
) -> None:
    assert list(ladders) == all_tasks
    single = [task for task, ladder in ladders.items() if len(ladder.levels) < 2]
    assert len(single) <= MOST_SINGLE_LEVELS
    # Two kinds of `aiw` are sound, and the third level of `bf` runs millions of steps.
    assert [task for task, ladder in ladders.items() if len(ladder.levels) == 2] == [
        *("aiw", "bf")
    ]


async def test_the_curriculum_is_measured_on_these_ladders(
    ladders: dict[str, TaskLadder],
) -> None:
    heights = {task: len(ladder.levels) for task, ladder in ladders.items()}
    assert json.loads(HEIGHTS.read_text()) == heights


async def test_a_ladder_that_differs_from_the_curriculum_has_a_reason_and_no_refused_level(
    ladders: dict[str, TaskLadder],
) -> None:
    origins = {ladder.origin for ladder in ladders.values()}
    assert origins <= {"curriculum", "repaired", "own", "none"}
    for task, ladder in ladders.items():
        assert (not ladder.reason) == (ladder.origin == "curriculum"), task
    assert [
        task for task, ladder in ladders.items() if "is refused: " in ladder.reason
    ] == []
    assert not REPAIRS.keys() & OWN_LADDERS.keys()


async def test_levels_survive_json(ladders: dict[str, TaskLadder]) -> None:
    for task, ladder in ladders.items():
        for level, parameters in enumerate(ladder.levels):
            recipe = Recipe(task=task, seed=2, level=level, parameters=parameters)
            assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


@pytest.mark.nightly
async def test_the_ends_of_every_ladder_are_sound(
    pool: TaskPool, ladders: dict[str, TaskLadder]
) -> None:
    sample = {task: ends(ladder) for task, ladder in ladders.items()}
    proofs = await prove_ladders(pool, sample, items=2, at_once=2)
    assert [fault for of_task in proofs for fault in faults(of_task)] == []


@pytest.mark.nightly
async def test_one_level_does_not_disturb_another(
    pool: TaskPool, ladders: dict[str, TaskLadder]
) -> None:
    for task, ladder in ladders.items():
        easy = Recipe(task=task, seed=8, parameters=ladder.levels[0])
        hard = Recipe(task=task, seed=8, parameters=ladder.levels[-1])
        before, _, after = [
            await pool.generate(recipe) for recipe in (easy, hard, easy)
        ]
        assert before == after, task


def test_ranges_of_a_curriculum_are_windows_near_the_level() -> None:
    assert curriculum_levels("chain_sum")[:3] == [
        {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
        {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2},
        {"min_terms": 3, "max_terms": 4, "min_digits": 2, "max_digits": 3},
    ]
    assert curriculum_levels("letter_counting")[:2] == [
        {"min_words": 5, "max_words": 7},
        {"min_words": 7, "max_words": 9},
    ]


def test_refused_levels_are_left_out_and_reported() -> None:
    ladder = ladder_of("caesar_cipher", curriculum_levels("caesar_cipher"))
    assert len(ladder.levels) == 2
    assert ladder.origin == "repaired"
    assert "level 2 is refused: AssertionError: rotation must be" in ladder.reason


def test_a_task_without_accepted_levels_keeps_its_default() -> None:
    ladder = ladder_of("gcd", [{"no_such_name": 1}, {"min_numbers": 0}])
    assert (ladder.levels, ladder.origin) == (({},), "none")
    assert "no_such_name" in ladder.reason
    assert "level 1 is refused" in ladder.reason


def test_equal_neighbors_are_merged() -> None:
    ladder = ladder_of("gcd", [{}, {}, {"max_value": 9}, {"max_value": 9}])
    assert ladder == TaskLadder(levels=({}, {"max_value": 9}), origin="curriculum")


def test_columns_of_repairs_have_one_height() -> None:
    assert levels_from({"ranges": {"n": [1, 2, 4]}, "values": {"p": [0.5, 0.1]}}) == (
        {"p": 0.5, "min_n": 1, "max_n": 2},
        {"p": 0.1, "min_n": 2, "max_n": 4},
    )
    with pytest.raises(ValueError, match="zip"):
        levels_from({"ranges": {"n": [1, 2]}, "values": {"p": [0.5, 0.1]}})


async def test_the_table_is_of_these_ladders(ladders: dict[str, TaskLadder]) -> None:
    found = groupby(read_table(), lambda row: row["task"])
    assert {task: [row["changes"] for row in rows] for task, rows in found} == {
        task: described(ladder) for task, ladder in ladders.items()
    }
    for row in read_table():
        task, level = row["task"], int(row["level"])
        recipe = Recipe(
            task=task, seed=0, level=level, parameters=ladders[task].levels[level]
        )
        found = level_floors(recipe)
        assert found == level_floors(replace(recipe, level=float(level)))
        if task in all_level_floors():
            assert found == all_level_floors()[task][level]
        assert level_floors(replace(recipe, parameters={"x": 1})) is None


async def test_no_level_of_the_table_is_degenerate() -> None:
    for row in read_table():
        assert int(row["questions"]) >= 50, row
        if row["answers"]:
            assert float(row["chance"]) <= 1 / max(2, int(row["answers"])) + 0.15, row
        if row["open"] == "yes":
            assert int(row["answers"]) >= 50, row


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 8, 9])
async def test_every_level_of_every_ladder_is_sound(seed: int) -> None:
    async with TaskPool(PoolSettings(processes=2), Counter()) as pool:
        ladders = await pool.ladders()
        proofs = await prove_ladders(pool, ladders, items=DRAWS, at_once=2, seed=seed)
    assert [fault for of_task in proofs for fault in faults(of_task)] == []


def test_the_table_says_by_what_each_ladder_rises() -> None:
    by_task = groupby(read_table(), lambda row: row["task"])
    for task, rows in ((task, list(rows)) for task, rows in by_task):
        said = {row["rises by"] for row in rows}
        assert said == {RISES_BY.get(task, LONGER_QUESTIONS)}, task
        if task not in RISES_BY:
            lengths = [int(row["characters"]) for row in rows]
            # Of 200 items the mean is known to half a percent.
            for shorter, longer in pairwise(lengths):
                assert longer >= 0.995 * shorter, task
            assert lengths[-1] >= 1.1 * lengths[0], task
