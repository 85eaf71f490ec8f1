"""`prove --rows`: faults, evaluation questions and repeats in rows of any trainer."""

import asyncio
import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from certificate_values import require_valid
from pyarrow import parquet

from reasoning_gym_environment.commands.prove import checked_rows, prove_rows
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.inference.prompts import build_messages
from reasoning_gym_environment.integrations.nemo_gym import nemo_gym_row
from reasoning_gym_environment.integrations.shared import problem_row
from reasoning_gym_environment.problems.seeds import evaluation_recipes
from reasoning_gym_environment.problems.split import SplitProblems
from reasoning_gym_environment.problems.suites import load_suite
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.settings import EnvironmentSettings
from reasoning_gym_environment.storage.export import verl_row

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONFIG = EnvironmentSettings(task_processes=1)


def entry(
    task: str, question: str, answer: str = "4", **metadata: Any
) -> dict[str, Any]:
    """A row as reasoning-gym's own entries."""
    metadata = {"source_dataset": task, **metadata}
    return {"question": question, "answer": answer, "metadata": metadata}


def asked_as(problem: Problem, layout: str) -> dict[str, Any]:
    """A problem's row for a framework."""
    messages = build_messages("Answer.", problem.question)
    return (
        nemo_gym_row(problem, messages)
        if layout == "nemo-gym"
        else verl_row(problem.recipe, messages)
    )


async def test_demonstrations_and_labels_are_read_in_the_answer_format(
    pool: TaskPool,
) -> None:
    split = SplitProblems.of_pool(pool, Counter(), skip_faulty_items=True)
    problem = await split.make(Recipe(task="gcd", seed=4))
    reply = {"role": "assistant", "content": rf"So $\boxed{{{problem.oracle}}}$."}
    row = problem_row(problem, "direct", "boxed")
    messages = [*row.pop("prompt"), reply]
    findings = {}
    for answer_format in ("tags", "boxed"):
        config = EnvironmentSettings(task_processes=1, answer_format=answer_format)
        checked = await checked_rows(
            [json.dumps({**row, "messages": messages})], config
        )
        findings[answer_format] = [finding.kind for finding in checked.findings]
    assert findings == {"tags": ["wrong"], "boxed": []}


async def test_faults_evaluation_questions_and_repeats_are_named(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = SplitProblems.of_pool(pool, Counter(), skip_faulty_items=True)
    train, held_out = [
        await split.make(Recipe(task="gcd", seed=seed)) for seed in (4, 5)
    ]
    recipes = evaluation_recipes(9, ["gcd", "letter_jumble"], 1)
    evaluated, jumbled = [await split.make(recipe) for recipe in recipes]
    entry_of = pickle.loads(jumbled.entry) | {"question": "Unscramble it \ud800"}
    suite = next(
        recipe for recipe, _, _ in load_suite("small").items() if recipe.task == "gcd"
    )
    of_suite = await pool.generate(suite)
    power = entry("power_function", "Compute -2^2", "4", base=-2, exponent=2)
    rows = [
        asked_as(train, "nemo-gym"),
        asked_as(train, "verl"),
        asked_as(held_out, "verl"),
        {"extra_info": {"entry": json.dumps(entry("gcd", evaluated.question))}},
        entry("gcd", of_suite.question),
        {**power, "metadata": json.dumps(power["metadata"])},
        entry("ab", "Reduce it", ""),
        {**asked_as(train, "nemo-gym"), "question": "What is 2 + 2?"},
        entry("power_function", "Compute 2^2"),
        entry("no_task", "Who?"),
        {"prompt": "What is 2 + 2?", "answer": "4"},
        entry_of,
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join([*map(json.dumps, rows), "torn", ""]))
    assert await asyncio.to_thread(prove_rows, file, CONFIG, as_json=True) == 1
    found = json.loads(capsys.readouterr().out)
    require_valid(found)
    assert found["rows"] == 13
    assert [(f["row"], f["task"], f["kind"]) for f in found["findings"]] == [
        (2, "gcd", "repeat"),
        (3, "gcd", "evaluation"),
        (4, "gcd", "evaluation"),
        (5, "gcd", "evaluation"),
        (6, "power_function", "ambiguous"),
        (7, "ab", "unanswerable"),
        (8, "gcd", "changed"),
        (8, "gcd", "repeat"),
        *((row, "", "unreadable") for row in range(9, 12)),
        (12, "letter_jumble", "changed"),
        (12, "letter_jumble", "evaluation"),
        (13, "", "unreadable"),
    ]
    unknown = "no verifier knows more than the row"
    assert [(one["row"], one["reason"]) for one in found["not_checked"]] == [
        (4, unknown),
        (5, unknown),
    ]
    details = {
        finding["row"]: finding["detail"]
        for finding in found["findings"]
        if finding["kind"] != "repeat" or finding["row"] == 2
    }
    assert details[2] == "asks what row 1 asks"
    assert details[5] == "in the suite small"
    assert details[8].startswith("it should ask 'Find the Greatest")
    assert details[9] == "power_function: its entry can't be checked (KeyError: 'base')"


async def test_a_level_that_is_not_that_of_the_parameters_is_named(
    pool: TaskPool,
) -> None:
    ladder = (await pool.ladders())["gcd"].levels
    recipe = Recipe(task="gcd", seed=4, level=3, parameters=ladder[3])
    problem = await pool.generate(recipe)

    def named(level: int) -> dict[str, Any]:
        renamed = replace(problem.recipe, level=level)
        return asked_as(replace(problem, recipe=renamed), "verl")

    beside = {**named(3), "extra_info": {"task": "gcd", "level": 5}}
    config = CONFIG.model_copy(update={"num_eval_samples_per_task": 0})
    rows = [named(3), named(2), beside, named(99)]
    checked = await checked_rows(rows, config)
    levels = {
        finding.row: finding.detail
        for finding in checked.findings
        if finding.kind == "changed"
    }
    assert levels.keys() == {2, 3, 4}
    assert "its parameters are of level 3" in levels[2]
    assert "level 5" in levels[3]
    assert "level 99" in levels[4]


@pytest.mark.processes
async def test_an_entry_whose_check_takes_too_long_is_named() -> None:
    letters = "".join(map(chr, range(65, 91)))
    slow = entry(
        "propositional_logic", "Which follows?", premises=[letters], example_answer="A"
    )
    config = CONFIG.model_copy(update={"generation_timeout": 1.0})
    [found] = (await checked_rows([json.dumps(slow)], config)).findings
    assert found.detail.startswith("propositional_logic: its entry can't be checked")
    assert "within 1 s" in found.detail


async def test_parquet_without_findings(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = SplitProblems.of_pool(pool, Counter(), skip_faulty_items=True)
    rows = [
        asked_as(await split.make(Recipe(task="gcd", seed=n)), "verl") for n in (4, 6)
    ]
    file = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    assert await asyncio.to_thread(prove_rows, file, CONFIG, as_json=False) == 0
    assert capsys.readouterr().out == "2 rows: nothing found\n"
    file.write_text("no parquet")
    with pytest.raises(FixableError, match=r"rows\.parquet can't be read"):
        prove_rows(file, CONFIG, as_json=False)
