"""Characters that look alike are one, in every writing of an answer, and no labels become one."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.records import Problem, Recipe, Status
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.characters import (
    KEEPS_ITS_CHARACTERS,
    plain_answer,
    plain_characters,
)
from reasoning_gym_environment.scoring.grading import verify_bare
from reasoning_gym_environment.scoring.notation import readable_form
from reasoning_gym_environment.tasks.datasets import Datasets
from reasoning_gym_environment.tasks.facts import PLAIN_NUMBERS, known_categories
from reasoning_gym_environment.tasks.ladders import build_ladders

ALL_TASKS = sorted(known_categories())
CASES = json.loads((Path(__file__).parent / "writing_cases.json").read_text("utf-8"))
LOOKALIKES = (
    "\u2212\u2013\u2011\u00a0\u202f\u2009\u200b\u200f"
    "\ufeff\u201c\u2019\u3002\u0663\uff14\uff0c"
)
ODD_TEXT = st.text(f"01234,.'{{}}\\- aé{LOOKALIKES}", max_size=14)
SEEDS = 4


@given(st.sampled_from(ALL_TASKS), st.one_of(ODD_TEXT, st.text()))
def test_normalizing_twice_changes_nothing(task: str, answer: str) -> None:
    once = plain_answer(task, answer)
    assert plain_answer(task, once) == once
    assert plain_characters(plain_characters(answer)) == plain_characters(answer)


@given(st.text(st.characters(codec="ascii")))
def test_ascii_is_plain_but_for_the_thousands_of_a_plain_number(text: str) -> None:
    assert plain_characters(text) == text
    for task in ("rotate_matrix", "codeio"):
        assert plain_answer(task, text) == text


def _labels(task: str, seeds: int) -> set[str]:
    """Labels of every level of a task; the library fails on some items."""
    datasets = Datasets()
    labels = set()
    [ladder] = build_ladders([task]).values()
    for parameters in ({}, *ladder.levels):
        for seed in range(seeds):
            recipe = Recipe(task=task, seed=seed, parameters=parameters)
            try:
                labels.add(datasets.entry(recipe)["answer"])
            except (GenerationError, ValueError):
                continue
    return {label for label in labels if label}


@pytest.mark.nightly
@pytest.mark.parametrize("task", ALL_TASKS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_label_has_such_characters_so_none_become_one(task: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = _labels(task, SEEDS)
    for label in labels:
        assert plain_answer(task, label) == label
    assert len({plain_answer(task, label) for label in labels}) == len(labels)


NUMBERS = st.integers(-(10**9), 10**9).map(str)


@given(st.sampled_from(sorted(PLAIN_NUMBERS - {"advanced_geometry"})), NUMBERS, NUMBERS)
def test_no_writing_of_a_number_is_another_number(
    task: str, number: str, label: str
) -> None:
    writings = [
        number.replace("-", "\u2013"),
        f"{int(number):,}".replace(",", "\u202f"),
        f"{int(number):,}".replace(",", "{,}"),
        number.translate({48 + value: 0xFF10 + value for value in range(10)}),
        f"\u200b**{number}**\u3002",
        f'{{"answer": {number}}}',
    ]
    for writing in writings:
        is_right = readable_form(task, "", writing, label) == label
        assert is_right == (number == label), writing
        assert readable_form(task, "", writing, number) == number


def test_every_task_that_keeps_its_characters_is_known() -> None:
    assert set(ALL_TASKS) >= KEEPS_ITS_CHARACTERS


def test_characters_of_an_own_task_are_content() -> None:
    assert readable_form("a_task_of_your_own", "", "\u22125", "-5") == "\u22125"


async def _problem(pool: TaskPool, case: dict[str, Any]) -> Problem:
    """An item whose label has the sign of the case, and thousands."""
    for seed in range(2, 100, 2):
        problem = await pool.generate(Recipe(task=case["task"], seed=seed))
        oracle = problem.oracle or ""
        if case.get("negative", oracle.startswith("-")) == oracle.startswith("-"):
            return problem
    raise AssertionError(case)


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["task"])
async def test_a_writing_keeps_a_right_answer_right_or_changes_its_value(
    case: dict[str, Any], pool: TaskPool
) -> None:
    problem = await _problem(pool, case)
    names = {"oracle": problem.oracle, "question": problem.question}
    for kind, solved in (("solved", True), ("refused", False)):
        texts = [str(eval(text, names)) for text in case[kind]]
        verdicts = await verify_bare(problem, texts, pool)
        for text, verdict in zip(texts, verdicts, strict=True):
            assert (verdict.status is Status.SOLVED) == solved, (text, problem.oracle)
            if not solved:
                assert (verdict.score or 0.0) <= case.get("most", 0.0), text
