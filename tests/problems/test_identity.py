"""Copies of an item, in another order or under other names, are the same item to training."""

from collections import Counter

import pytest

from reasoning_gym_environment.evaluation.planning import EvaluationSet, planned_recipes
from reasoning_gym_environment.problems.held_out import HeldOut, hold_out_questions
from reasoning_gym_environment.problems.identity import IDENTITIES
from reasoning_gym_environment.problems.seeds import training_seed
from reasoning_gym_environment.problems.sets import make_problems, training_recipes
from reasoning_gym_environment.problems.stream import skip_faulty
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.facts import known_categories

GRAPH = "Vertices: {}\nEdges: {}\nPossible colors: [1, 2, 3]\n"
PATH = [(vertex, vertex + 1) for vertex in range(8)]
RENAMED_PATH = [(8 - one, 8 - other) for one, other in PATH[::-1]]
FORK = [*PATH[:-1], (1, 8)]
COURSES = "There are a total of 9 courses you have to take, labeled from 0 to 8.\n{}\n"

CASES = [
    (
        "puzzle24",
        "Make 24 using 8, 1, 9, 2.",
        "Make 24 using 1, 2, 8, 9.",
        "Make 24 using 1, 2, 8, 8.",
    ),
    (
        "countdown",
        "Using all the numbers 8, 2, 6, create an expression that equals 50.\n1. Provide",
        "Calculate 50 using all of these numbers: 6, 8, 2.\n1. Provide",
        "Calculate 50 using all of these numbers: 6, 8, 3.\n1. Provide",
    ),
    (
        "jugs",
        "litres of water: A:5, B:9, C:7\nAnd your target is: 8 litres.",
        "litres of water: A:9, B:7, C:5\nAnd your target is: 8 litres.",
        "litres of water: A:9, B:8, C:5\nAnd your target is: 7 litres.",
    ),
    (
        "gcd",
        "(GCD) of these numbers: 12, 3.",
        "(GCD) of these numbers: 3, 12.",
        "(GCD) of these numbers: 3, 6.",
    ),
    (
        "chain_sum",
        "problem: 2 - 1 + 4 =",
        "problem: 4 + 2 - 1 =",
        "problem: 4 - 2 + 1 =",
    ),
    (
        "simple_equations",
        "Determine the value of d that satisfies: 10*d + 10 = 70",
        "Find the value of b in the equation: 10*b + 10 = 70",
        "Find the value of b in the equation: 10*b + 10 = 80",
    ),
    ("fraction_simplification", r"$\frac{6}{32}$", "$6/32$", "$32/6$"),
    (
        "cryptarithm",
        "cryptarithm:\n\n  AB\n+ BA\n----\n CBC\n\nEach letter",
        "cryptarithm:\n\n  XY\n+ YX\n----\n ZYZ\n\nEach letter",
        "cryptarithm:\n\n  XY\n+ XY\n----\n ZYZ\n\nEach letter",
    ),
    (
        "graph_color",
        GRAPH.format(list(range(9)), PATH),
        GRAPH.format(list(range(9)), RENAMED_PATH),
        GRAPH.format(list(range(9)), FORK),
    ),
    (
        "course_schedule",
        COURSES.format(PATH),
        COURSES.format([(8 - other, 8 - one) for one, other in PATH]),
        COURSES.format(FORK),
    ),
]


@pytest.mark.parametrize(("task", "item", "copy", "other"), CASES)
async def test_a_copy_of_a_reserved_question_is_held_out_and_another_item_is_not(
    task: str, item: str, copy: str, other: str
) -> None:
    held_out = await hold_out_questions({item})(task)
    assert HeldOut.of(task, copy, None) & held_out
    assert not HeldOut.of(task, other, None) & held_out


def test_small_graphs_are_known_by_their_names() -> None:
    for task, text in (
        ("graph_color", GRAPH.format([0, 1], [(0, 1)])),
        ("course_schedule", COURSES.format(PATH[:3])),
    ):
        assert IDENTITIES[task](text) is None


@pytest.mark.asyncio(loop_scope="session")
async def test_each_rule_reads_the_questions_of_its_task(pool: TaskPool) -> None:
    assert IDENTITIES.keys() <= known_categories().keys()
    for task, identity in IDENTITIES.items():
        known: Counter[str] = Counter()
        for index in range(8):
            recipe = Recipe(task=task, seed=training_seed(3, "", task, index))
            problem = await pool.generate(recipe)
            known[identity(problem.question) or ""] += 1
        assert len(known) > 3, task
        assert known[""] < 8, task


@pytest.mark.asyncio(loop_scope="session")
async def test_training_rows_hold_no_copy_of_an_evaluation_item(pool: TaskPool) -> None:
    generate = skip_faulty(pool.generate, Counter())
    for task in ("gcd", "jugs"):
        levels = (await pool.ladders())[task].levels
        planned = planned_recipes(
            tasks=[task],
            ladders={task: levels},
            eval_seed=5,
            num_eval_samples_per_task=20,
            eval_difficulties=[0.0],
        )
        evaluation = EvaluationSet(generate, planned)
        items = [item.problem for item in await evaluation.items()]
        rows = await make_problems(
            generate,
            training_recipes(0, task, 0, levels[0]),
            150,
            held_out=await evaluation.held_out(task),
        )
        identities = [
            {IDENTITIES[task](one.question) for one in ones} for ones in (items, rows)
        ]
        assert identities[0].isdisjoint(identities[1])
