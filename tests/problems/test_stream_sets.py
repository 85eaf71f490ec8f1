"""A set has the first problems that can be made; an evaluation set, different ones."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from reasoning_gym_environment.errors import (
    ConfigurationError,
    GenerationError,
    GenerationTimeoutError,
)
from reasoning_gym_environment.problems.cache import ProblemCache
from reasoning_gym_environment.problems.repeats import (
    RepeatedQuestions,
    repeat_warnings,
)
from reasoning_gym_environment.problems.sets import (
    MAX_REPEATS,
    make_distinct,
    make_problems,
    training_recipes,
)
from reasoning_gym_environment.problems.stream import give_up_on_hangs
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.tasks.facts import level_questions


class Pool:
    """Makes problems whose question is their seed, and fails for chosen seeds."""

    def __init__(self, *, fails: range = range(0)) -> None:
        self.fails = fails

    async def generate(self, recipe: Recipe) -> Problem:
        if recipe.seed in self.fails:
            raise GenerationError(f"no item of seed {recipe.seed}")
        return Problem(recipe=recipe, question=str(recipe.seed), oracle="1", entry=b"")


def recipes() -> Iterator[Recipe]:
    return (Recipe(task="gcd", seed=seed) for seed in itertools.count())


async def test_failed_items_are_replaced() -> None:
    made = await make_problems(Pool(fails=range(1, 4)).generate, recipes(), 3)
    assert [problem.recipe.seed for problem in made] == [0, 4, 5]


async def test_a_longer_set_starts_with_the_shorter_one() -> None:
    pool = Pool(fails=range(2, 5))
    made = [await make_problems(pool.generate, recipes(), count) for count in (3, 30)]
    assert made[1][:3] == made[0]


async def test_twenty_failures_in_a_row_raise() -> None:
    with pytest.raises(ConfigurationError) as error:
        await make_problems(Pool(fails=range(1000)).generate, recipes(), 100)
    assert str(error.value) == "20 items in a row can't be made: no item of seed 19"
    assert len(await make_problems(Pool(fails=range(19)).generate, recipes(), 1)) == 1


async def test_each_problem_that_is_made_is_told() -> None:
    counts: Counter[str] = Counter()
    pool = Pool(fails=range(2, 4))
    await make_problems(
        pool.generate, recipes(), 4, on_made=lambda: counts.update(["made"])
    )
    assert counts == {"made": 4}


class Large:
    """Makes problems of a megabyte, of which some fail the first time."""

    def __init__(self, fails: int = 0) -> None:
        self.asked: list[int] = []
        self._fails = fails

    async def generate(self, recipe: Recipe) -> Problem:
        self.asked.append(recipe.seed)
        if recipe.seed == self._fails and self.asked.count(recipe.seed) == 1:
            raise GenerationError("missed")
        return Problem(recipe=recipe, question="?", oracle="1", entry=bytes(10**6))


async def test_problems_are_remembered_within_a_number_of_bytes() -> None:
    pool, remembered = Large(), ProblemCache(max_bytes=3 * 10**6)
    for seed in (1, 2, 3, 1, 3, 2):
        problem = await remembered.get(pool.generate, Recipe(task="gcd", seed=seed))
        assert problem.recipe.seed == seed
    assert pool.asked == [1, 2, 3, 1, 2], "two fit, and the last used are kept"


async def test_concurrent_callers_share_a_problem_and_failures_are_forgotten() -> None:
    pool, remembered = Large(fails=7), ProblemCache()
    recipe = Recipe(task="gcd", seed=7)
    failed = await asyncio.gather(
        *(remembered.get(pool.generate, recipe) for _ in range(3)),
        return_exceptions=True,
    )
    assert [str(error) for error in failed] == ["missed"] * 3
    again = await asyncio.gather(
        *(remembered.get(pool.generate, recipe) for _ in range(3))
    )
    assert again[0] is again[1] is again[2]
    assert pool.asked == [7, 7]


async def test_a_set_whose_items_hang_ends_after_three_deadlines() -> None:
    asked = 0

    async def hang(recipe: Recipe) -> Problem:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        raise GenerationTimeoutError(f"{recipe.task} at level {recipe.level}: deadline")

    drawn = training_recipes(0, "gcd", 2, {})
    said = "3 items in a row hang; the last error: gcd at level 2: deadline"
    with pytest.raises(ConfigurationError, match=said):
        await make_problems(hang, drawn, 3)
    assert asked == 3


async def test_hangs_between_items_that_are_made_are_only_skipped() -> None:
    turns = itertools.cycle([True, True, False])
    made = Problem(
        recipe=Recipe(task="gcd", seed=0), question="?", oracle="1", entry=b""
    )

    async def hang_often(recipe: Recipe) -> Problem:
        if next(turns):
            raise GenerationTimeoutError("gcd: deadline")
        return replace(made, recipe=recipe)

    generate = give_up_on_hangs(hang_often)
    for _ in range(4):
        for _ in range(2):
            with pytest.raises(GenerationTimeoutError):
                await generate(made.recipe)
        assert await generate(made.recipe) == made


class Modulo:
    """Makes problems whose question is a number below `questions`; counts what is made."""

    def __init__(self, questions: int) -> None:
        self._questions = questions
        self.made = 0

    async def generate(self, recipe: Recipe) -> Problem:
        self.made += 1
        question = str(recipe.seed % self._questions)
        return Problem(recipe=recipe, question=question, oracle="1", entry=b"")


async def test_a_distinct_set_draws_repeats_again_and_begins_with_the_shorter() -> None:
    first = list(itertools.islice(recipes(), 90))
    many = await make_distinct(Modulo(97).generate, [*first, *first[:7]])
    questions = [problem.question for problem in many if isinstance(problem, Problem)]
    assert len(set(questions)) == len(questions) == 97
    assert questions[:90] == [str(number) for number in range(90)]
    few = await make_distinct(Modulo(97).generate, [*first, *first[:3]])
    assert few == many[:93]


async def test_a_distinct_set_ends_where_there_is_no_other_question() -> None:
    pool = Modulo(5)
    made = await make_distinct(pool.generate, list(itertools.islice(recipes(), 40)))
    assert [problem is None for problem in made] == [False] * 5 + [True] * 35
    assert pool.made == 40 + MAX_REPEATS, "only the first repeat is drawn again"


async def test_a_distinct_set_asks_nothing_that_was_asked_before() -> None:
    [made] = await make_distinct(
        Modulo(97).generate, [Recipe(task="gcd", seed=1)], asked={"0", "1"}
    )
    assert isinstance(made, Problem)
    assert made.question not in {"0", "1"}


def numbered(questions: int, level: int) -> Iterator[Problem]:
    """Problems of a level with so many questions."""
    for seed in itertools.count():
        recipe = Recipe(task="tower_of_hanoi", seed=2 * seed, level=level)
        question = str(seed % questions)
        yield Problem(recipe=recipe, question=question, oracle="1", entry=b"")


def test_few_questions_in_a_file_or_a_stream_are_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [
        *itertools.islice(numbered(8, 1), 80),
        *itertools.islice(numbered(60, 2), 80),
    ]
    known = level_questions("tower_of_hanoi", 1)
    assert repeat_warnings(rows) == [
        "few questions: 8 of the 80 problems of tower_of_hanoi at level 1 differ, and one is "
        f"there 10 times; {known} of 200 draws of it differ; use a level with more questions, "
        "fewer problems, or a smaller evaluation set"
    ]
    repeated = RepeatedQuestions()
    for problem in itertools.islice(
        zip(numbered(8, 1), numbered(150, 2), strict=True), 300
    ):
        for one in problem:
            repeated.add(one)
    [told] = caplog.messages
    assert told.startswith(
        "Few questions: 8 of the first 200 problems of tower_of_hanoi at level 1 differ"
    )
