"""What a row of another trainer claims, against what its recipe, verifier and metadata know."""

import json
import pickle
from typing import Any

import pytest

from reasoning_gym_environment.inference.prompts import build_messages
from reasoning_gym_environment.integrations.nemo_gym import nemo_gym_row
from reasoning_gym_environment.integrations.shared import problem_row
from reasoning_gym_environment.proof.row_reading import read_row
from reasoning_gym_environment.proof.rows import CheckedRows, check_rows
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.storage.export import skyrl_row, verl_row
from reasoning_gym_environment.tasks.catalogue import bundled_snapshot

pytestmark = pytest.mark.asyncio(loop_scope="session")

SEED = 912344
"""Of rows that no suite has."""


async def checked(pool: TaskPool, rows: list[Any]) -> CheckedRows:
    snapshot = bundled_snapshot()
    assert snapshot is not None
    ladders = {task: ladder.levels for task, ladder in snapshot.ladders.items()}
    return await check_rows(rows, pool, ladders)


async def made(pool: TaskPool, task: str, seed: int = SEED) -> Problem:
    return await pool.generate(Recipe(task=task, seed=seed))


async def entry_of(pool: TaskPool, task: str, seed: int = SEED) -> dict[str, Any]:
    """An item as the library writes it into a row."""
    entry: dict[str, Any] = pickle.loads((await made(pool, task, seed)).entry)
    as_json: dict[str, Any] = json.loads(json.dumps(entry))
    return as_json


def kinds(found: CheckedRows) -> list[tuple[int, str]]:
    return [(one.row, one.kind) for one in found.findings]


async def test_rows_with_a_recipe_are_held_against_its_problem(pool: TaskPool) -> None:
    gcd = await made(pool, "gcd")
    lcm = await made(pool, "lcm")
    ask = build_messages("Answer.", gcd.question)
    ask_other = build_messages("Answer.", lcm.question)
    sound = nemo_gym_row(gcd, ask)
    shown = problem_row(gcd, "direct")
    answer = {"role": "assistant", "content": f"<answer>{gcd.oracle}</answer>"}
    bare = {"role": "assistant", "content": gcd.oracle}
    found = await checked(
        pool,
        [
            sound,
            {**sound, "answer": "7919"},
            {**sound, "answer": f"<answer>{gcd.oracle}</answer>1</answer>"},
            {**sound, "responses_create_params": {"input": ask_other}},
            {**sound, "question": lcm.question},
            {**sound, "metadata": {"source_dataset": "lcm"}},
            {**verl_row(gcd.recipe, ask), "data_source": "reasoning-gym/lcm"},
            skyrl_row(gcd.recipe, ask_other),
            {**shown, "oracle": "7919"},
            {"recipe": shown["recipe"], "messages": [*ask, answer]},
            {"recipe": shown["recipe"], "messages": [*ask, bare]},
        ],
    )
    faults = [(row, kind) for row, kind in kinds(found) if kind != "repeat"]
    assert faults == [
        *((row, "wrong") for row in (2, 3)),
        *((row, "changed") for row in range(4, 9)),
        *((row, "wrong") for row in (9, 11)),
    ]
    detail = found.findings[0].detail
    assert detail == f"its answer '7919' earns 0.0 (wrong); right is '{gcd.oracle}'"


async def test_entries_are_held_against_verifier_and_metadata(pool: TaskPool) -> None:
    gcd = await entry_of(pool, "gcd")
    chain_sum = await entry_of(pool, "chain_sum")
    countdown = await entry_of(pool, "countdown")
    numbers = gcd["metadata"]["numbers"]
    found = await checked(
        pool,
        [
            gcd,
            {**gcd, "answer": "7919"},
            {**gcd, "question": gcd["question"].replace(str(numbers[0]), "7919")},
            {**gcd, "question": gcd["question"].replace("Greatest", "Least")},
            {**countdown, "answer": "1 + 1"},
            chain_sum,
            {**chain_sum, "answer": "7919"},
            {**gcd, "prompt": build_messages("", "What is 2 + 2?")},
        ],
    )
    faults = [(row, kind) for row, kind in kinds(found) if kind != "repeat"]
    assert faults == [
        (2, "wrong"),
        (3, "changed"),
        (4, "changed"),
        (5, "wrong"),
        (8, "changed"),
    ]
    assert [one.row for one in found.unchecked] == [6, 7]
    assert found.summary() == (
        "8 rows: 2 wrong, 3 repeat, 3 changed, "
        "2 not checked (no verifier knows more than the row)"
    )


async def test_a_verifier_that_raises_finds_no_answer_wrong(pool: TaskPool) -> None:
    """It expects words of four letters, as the default configuration has."""
    recipe = Recipe(
        task="word_ladder",
        seed=SEED,
        parameters={"min_word_length": 5, "max_word_length": 5},
    )
    entry = json.loads(json.dumps(pickle.loads((await pool.generate(recipe)).entry)))
    found = await checked(pool, [entry])
    assert not found.findings
    [unchecked] = found.unchecked
    assert unchecked.reason == "the default verifier has no verdict (verifier_error)"


async def test_an_entry_whose_seed_is_known_is_made_again(pool: TaskPool) -> None:
    entry = await entry_of(pool, "chain_sum")
    entry["metadata"]["source_index"] = 4
    entry["extra_info"] = {"seed": SEED - 4}
    unlike = {**entry, "extra_info": {"seed": SEED}}
    found = await checked(pool, [entry, {**entry, "answer": "7919"}, unlike])
    assert (2, "wrong") in kinds(found)
    # Its own seed makes another question, so nothing is known.
    assert [one.row for one in found.unchecked] == [3]


async def test_rows_with_other_parameters_are_not_called_wrong(pool: TaskPool) -> None:
    entries = [await entry_of(pool, "gcd", SEED + 2 * n) for n in range(6)]
    for entry in entries:
        entry["question"] = f"Solve it. {entry['question']}"
    found = await checked(pool, entries)
    assert not found.findings
    assert {one.reason for one in found.unchecked} == {
        "most rows of the task differ from its default configuration"
    }


async def test_a_row_is_read_wherever_frameworks_keep_its_parts() -> None:
    recipe = {"task": "gcd", "seed": 4}
    nested = {
        "extra_info": json.dumps({"answer": 4, "task": "gcd"}),
        "reward_model": {"ground_truth": json.dumps(recipe)},
        "prompt": json.dumps([{"role": "user", "content": "Which?"}]),
    }
    row = read_row(json.dumps(nested))
    assert row.recipe == Recipe(task="gcd", seed=4)
    assert (row.answers, row.questions, row.tasks) == (["4"], ["Which?"], ["gcd"])
    codeio = read_row({"answer": '{"x": 1}', "question": "Which?"})
    assert codeio.answers == ['{"x": 1}']
