"""The question itself decides its side: training and evaluation share none."""

import asyncio
import csv
import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.errors import (
    GenerationError,
    GenerationTimeoutError,
    NoQuestionsLeftError,
)
from reasoning_gym_environment.evaluation.planning import EvaluationSet, planned_recipes
from reasoning_gym_environment.problems.identity import problem_identity
from reasoning_gym_environment.problems.sampler import Sampler
from reasoning_gym_environment.problems.seeds import (
    EVAL_SEED,
    evaluation_seed,
    training_seed,
)
from reasoning_gym_environment.problems.split import (
    COUNTED_DRAWS,
    LEAST_QUESTIONS,
    ReservedQuestions,
    SplitProblems,
    belongs_to_evaluation,
    is_published,
    may_be_asked,
)
from reasoning_gym_environment.problems.stream import MAX_SKIPPED, RecipeStream
from reasoning_gym_environment.problems.suites import load_suite
from reasoning_gym_environment.records import FaultKind, Problem, Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.facts import has_few_questions, stored_snapshot

OWN = {"max_value": 9}
"""Parameters of no level."""


class Numbered:
    """Makes problems with so many different questions."""

    def __init__(self, questions: int) -> None:
        self.questions = questions
        self.made = 0

    async def generate(self, recipe: Recipe) -> Problem:
        self.made += 1
        question = f"What is {(recipe.seed >> 1) % self.questions}?"
        return Problem(recipe=recipe, question=question, oracle="1", entry=b"")

    @property
    def all_questions(self) -> set[str]:
        return {f"What is {number}?" for number in range(self.questions)}


def split_of(source: Numbered, counts: Counter[str] | None = None) -> SplitProblems:
    counts = Counter() if counts is None else counts
    return SplitProblems(source.generate, counts, skip_faulty_items=True)


def training(count: int, **changes: object) -> list[Recipe]:
    seeds = [training_seed(1, "a", "gcd", draw) for draw in range(count)]
    return [Recipe(task="gcd", seed=seed, **changes) for seed in seeds]  # type: ignore[arg-type]  # of a recipe


def evaluation(count: int, **changes: object) -> list[Recipe]:
    seeds = [evaluation_seed(1, "gcd", draw) for draw in range(count)]
    return [Recipe(task="gcd", seed=seed, **changes) for seed in seeds]  # type: ignore[arg-type]  # of a recipe


async def asked(split: SplitProblems, recipes: list[Recipe]) -> list[Problem]:
    return await asyncio.gather(*map(split.make, recipes))


def test_a_quarter_of_all_questions_is_evaluations() -> None:
    sides = [belongs_to_evaluation(f"What is {number}?") for number in range(4000)]
    assert 0.22 < sum(sides) / 4000 < 0.28  # four standard errors


async def test_training_and_evaluation_ask_all_questions_and_share_none() -> None:
    source = Numbered(100)
    counts: Counter[str] = Counter()
    split = split_of(source, counts)
    trained = {p.question for p in await asked(split, training(2000))}
    redrawn = counts["sampling/other_split"]
    assert 0.2 < redrawn / (2000 + redrawn) < 0.3
    evaluated = {p.question for p in await asked(split, evaluation(2000))}
    assert trained.isdisjoint(evaluated)
    assert trained | evaluated == source.all_questions


async def test_a_redrawn_problem_depends_on_its_recipe_alone_and_keeps_its_level() -> (
    None
):
    recipes = [*training(50, level=3), *evaluation(50, level=3)]
    together = await asked(split_of(Numbered(100)), recipes)
    alone = [await split_of(Numbered(100)).make(recipe) for recipe in recipes]
    assert together == alone
    for recipe, problem in zip(recipes, together, strict=True):
        assert problem.recipe.level == 3
        assert problem.recipe.is_evaluation == recipe.is_evaluation
    # What a redrawn recipe stands for is what was asked.
    assert await asked(split_of(Numbered(100)), [p.recipe for p in alone]) == alone


async def test_a_small_level_of_other_parameters_is_not_split() -> None:
    source = Numbered(LEAST_QUESTIONS - 1)
    split = split_of(source)
    trained = await asked(split, training(1000, parameters=OWN))
    evaluated = await asked(split, evaluation(1000, parameters=OWN))
    assert {p.question for p in trained} == source.all_questions
    assert {p.question for p in evaluated} == source.all_questions
    assert all(problem.also_trained_on for problem in evaluated)
    assert not any(problem.also_trained_on for problem in trained)


async def test_a_level_is_counted_once_and_only_until_it_is_large_enough() -> None:
    source = Numbered(10**6)
    split = split_of(source)
    problems = await asked(split, evaluation(10, parameters=OWN))
    assert not any(problem.also_trained_on for problem in problems)
    redrawn = source.made
    assert redrawn < COUNTED_DRAWS
    await asked(split, evaluation(10, parameters=OWN))
    assert source.made <= 2 * redrawn - LEAST_QUESTIONS


@pytest.mark.parametrize("parameters", [{}, OWN])
async def test_reserved_questions_are_left_out_of_any_level(
    parameters: dict[str, int],
) -> None:
    source = Numbered(200)
    counts: Counter[str] = Counter()
    split = split_of(source, counts)
    trained = {p.question for p in await asked(split, training(400))}
    reserved = ReservedQuestions(sorted(trained)[:40])
    again = await asyncio.gather(
        *(split.make(recipe, reserved=reserved) for recipe in training(400))
    )
    assert {p.question for p in again}.isdisjoint(sorted(trained)[:40])
    assert counts["sampling/evaluation_questions_redrawn"] > 20


async def test_a_level_without_any_question_left_is_named() -> None:
    source = Numbered(60)
    reserved = ReservedQuestions(source.all_questions)
    [recipe] = training(1, level=2)
    with pytest.raises(GenerationError, match=f"gcd 2: {MAX_SKIPPED} items in a row"):
        await split_of(source).make(recipe, reserved=reserved)


async def test_a_level_without_any_question_left_is_drawn_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Numbered(60)
    split = split_of(source)
    reserved = ReservedQuestions(source.all_questions)

    async def refused(recipes: list[Recipe]) -> int:
        """Ask for problems that there are not; return how many items that took."""
        before = source.made
        results = await asyncio.gather(
            *(split.make(recipe, reserved=reserved) for recipe in recipes),
            return_exceptions=True,
        )
        assert all(isinstance(result, NoQuestionsLeftError) for result in results)
        return source.made - before

    assert await refused(training(1, level=2)) == MAX_SKIPPED
    assert await refused(training(50, level=2)) == 0
    # Asked by its parameters, a level is the same; others are found on their own.
    assert await refused(training(50, level=None)) == 0
    assert await refused(training(50, parameters=OWN)) >= MAX_SKIPPED
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "gcd 2" in caplog.messages[0]
    # Other streams reserve other questions.
    assert await split.make(training(1, level=2)[0])


async def test_a_stream_goes_on_without_a_level_that_has_no_question_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each draw of that level would else make MAX_SKIPPED items, and log a line."""

    class OneIsReserved(Numbered):
        async def generate(self, recipe: Recipe) -> Problem:
            problem = await super().generate(recipe)
            await asyncio.sleep(0)  # as a process would
            if recipe.task == "gcd":
                return replace(problem, question="What is 0?")
            return problem

    source = OneIsReserved(10**6)
    split = split_of(source)
    reserved = ReservedQuestions(["What is 0?"])
    sampler = Sampler({"gcd": 1.0, "lcm": 1.0}, run_seed=1, replica="a")
    stream = RecipeStream(sampler, partial(split.make, reserved=reserved), prefetch=4)
    problems = [await stream.next_problem() for _ in range(40)]
    stream.cancel()
    assert {problem.recipe.task for problem in problems} == {"lcm"}
    assert source.made < 2 * MAX_SKIPPED
    assert len(caplog.records) == 1


async def test_a_recipe_from_elsewhere_is_made_for_the_side_that_is_asked_for() -> None:
    split = split_of(Numbered(100))
    for recipe in evaluation(30):
        problem = await split.make(recipe, split="train")
        assert may_be_asked(problem, "train")


def test_the_known_small_levels_are_those_of_the_table() -> None:
    table = Path(__file__).parents[2] / "research" / "distinct_items.csv"
    ladders = stored_snapshot()["ladders"]
    small = set()
    with table.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            level = None if row["level"] == "default" else int(row["level"])
            levels = ladders[row["task"]]["levels"]
            if level is not None and level >= len(levels):
                continue
            parameters = {} if level is None else levels[level]
            recipe = Recipe(
                task=row["task"], seed=0, level=level, parameters=parameters
            )
            is_small = int(row["items"]) < LEAST_QUESTIONS
            assert has_few_questions(recipe) is is_small, row
            if is_small:
                small.add(row["task"])
    assert small == {"syllogism", "tower_of_hanoi"}


@pytest.mark.asyncio(loop_scope="session")
async def test_the_small_levels_of_the_paper_are_small(pool: TaskPool) -> None:
    split = SplitProblems.of_pool(pool, Counter(), skip_faulty_items=True)
    task, parameters = (
        "syllogism",
        {
            "allow_all": True,
            "allow_no": True,
            "allow_some": False,
            "allow_some_not": False,
        },
    )
    recipe = Recipe(task=task, seed=1, parameters=parameters)
    assert (await split.make(recipe)).also_trained_on
    # The same set, written so that it must be counted.
    longer = {**parameters, "invalid_ratio": 0.3}
    recipe = Recipe(task=task, seed=1, parameters=longer)
    assert (await split.make(recipe)).also_trained_on


@pytest.mark.asyncio(loop_scope="session")
async def test_the_list_of_published_questions_holds_all_that_the_paper_asks(
    pool: TaskPool,
) -> None:
    """Also those that its suite leaves out, of which training asks the ambiguous ones."""
    split = SplitProblems.of_pool(pool, Counter(), skip_faulty_items=True)
    for name in ("paper-easy", "paper-hard"):
        recipes = [recipe for recipe, _ in load_suite(name).recipes()]
        for recipe in recipes[:: len(recipes) // 20]:
            problem = await pool.generate(recipe)
            assert is_published(problem_identity(problem)), recipe
            if has_few_questions(recipe):
                continue
            other = await split.make(recipe, split="train")
            assert problem_identity(other) != problem_identity(problem)
        ambiguous = [
            Recipe(task=left.task, seed=left.seed, parameters=left.parameters)
            for left in load_suite(name).left_out
            if left.fault == FaultKind.AMBIGUOUS
        ]
        for recipe in ambiguous[:: len(ambiguous) // 10]:
            problem = await pool.generate(recipe)
            assert is_published(problem_identity(problem)), recipe


@pytest.mark.asyncio(loop_scope="session")
async def test_a_level_asked_by_its_parameters_has_the_same_sides(
    pool: TaskPool,
) -> None:
    split = SplitProblems.of_pool(pool, Counter(), skip_faulty_items=True)
    ladders = stored_snapshot()["ladders"]
    for task, level in (("tower_of_hanoi", 2), ("coin_flip", 0)):
        by_level = ladders[task]["levels"][level]
        made = [
            await split.make(
                Recipe(task=task, seed=7, level=number, parameters=parameters)
            )
            for number, parameters in (
                (level, by_level),
                (None, by_level),
                (None, json.loads(json.dumps(by_level))),
            )
        ]
        assert len({problem.question for problem in made}) == 1
        assert len({problem.also_trained_on for problem in made}) == 1


class Failing(Numbered):
    """Can't make some of the items."""

    def __init__(self, error: type[GenerationError]) -> None:
        super().__init__(100)
        self._error = error

    async def generate(self, recipe: Recipe) -> Problem:
        problem = await super().generate(recipe)
        if recipe.seed % 5 == 0:
            raise self._error("no item")
        return problem


async def test_redrawn_items_that_cannot_be_made_cost_no_problem() -> None:
    split = split_of(Failing(GenerationError))
    for recipe in evaluation(60):
        if recipe.seed % 5 == 0:
            with pytest.raises(GenerationError, match="no item"):
                await split.make(recipe)
        else:
            assert (await split.make(recipe)).recipe.seed % 5


async def test_a_redrawn_item_that_takes_too_long_ends_the_draw() -> None:
    split = split_of(Failing(GenerationTimeoutError))
    results = await asyncio.gather(
        *map(split.make, evaluation(60)), return_exceptions=True
    )
    late = [result for result in results if isinstance(result, GenerationTimeoutError)]
    assert len(late) > 60 / 5


@pytest.mark.asyncio(loop_scope="session")
async def test_a_gym_asks_for_evaluation_what_evaluate_asks(pool: TaskPool) -> None:
    tasks = ["caesar_cipher", "gcd", "tower_of_hanoi"]
    ladders = {task: (await pool.ladders())[task].levels for task in tasks}
    planned = planned_recipes(
        tasks=tasks,
        ladders=ladders,
        eval_seed=EVAL_SEED,
        num_eval_samples_per_task=6,
        eval_difficulties=[0.0],
    )
    split = SplitProblems.of_pool(pool, Counter(), skip_faulty_items=True)
    items = await EvaluationSet(split.make, planned).items()
    async with AsyncReasoningGym(processes=1) as gym:
        for task in tasks:
            for level in (None, 0):
                asked = [
                    item.problem
                    for item in items
                    if (item.problem.recipe.task, item.problem.recipe.level)
                    == (task, level)
                ]
                of_gym = await gym.problems(task, level=level, count=6, split="eval")
                assert asked == of_gym
