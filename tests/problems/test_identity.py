"""Copies of an item, in another order or under other names, are the same item to training."""

from collections import Counter

import pytest

from reasoning_gym_environment.problems.identity import IDENTITIES, identity_of
from reasoning_gym_environment.problems.seeds import training_seed
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
    (
        "syllogism",
        "1. All cats are dogs\n2. No dogs are birds\nDoes it logically follow that:\n"
        "All cats are birds?",
        "1. All tigers are ants\n2. No ants are men\nDoes it logically follow that:\n"
        "All tigers are men?",
        "1. All tigers are ants\n2. No ants are men\nDoes it logically follow that:\n"
        "All men are tigers?",
    ),
    (
        "tower_of_hanoi",
        "a Tower of Hanoi with 3 disks and 4 pegs. Move all disks from Peg 1 to Peg 2",
        "a Tower of Hanoi with 3 disks and 4 pegs. Move all disks from Peg 3 to Peg 1",
        "a Tower of Hanoi with 4 disks and 4 pegs. Move all disks from Peg 1 to Peg 2",
    ),
    (
        "family_relationships",
        "John is married to Isabella. They have a child called Edward.\nWhat is Isabella to "
        "Edward?",
        "Henry is married to Karen. They have a child called Sebastian.\nWhat is Karen to "
        "Sebastian?",
        "Henry is married to Karen. They have a child called Sebastian.\nWhat is Henry to "
        "Sebastian?",
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
def test_copies_have_one_identity_and_another_item_has_another(
    task: str, item: str, copy: str, other: str
) -> None:
    identity, of_copy, of_other = [
        identity_of(task, question, "1") for question in (item, copy, other)
    ]
    assert identity == of_copy != of_other


def test_a_disguised_answer_identifies_its_item() -> None:
    assert identity_of("caesar_cipher", "KHOOR", "HELLO") == "HELLO"
    assert identity_of("caesar_cipher", "KHOOR", None) == "KHOOR"
    assert identity_of("sudoku", "KHOOR", "HELLO") == "KHOOR"


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
