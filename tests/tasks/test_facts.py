"""Every entry of `tasks/facts.py` against the installed reasoning-gym.

A later version that adds a task, an `eval` or a seed in a constructor fails here.
"""

import ast
import asyncio
import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path
from pickle import loads
from types import ModuleType
from typing import Any

import pytest

from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.records import Problem, Recipe, Status
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.notation import is_same_number
from reasoning_gym_environment.tasks.catalogue import read_registry
from reasoning_gym_environment.tasks.facts import (
    EXECUTES_ANSWERS,
    NOT_A_TASK,
    PAYS_ANY_ANSWER,
    PLAIN_NUMBERS,
    SEEDED_AT_CONSTRUCTION,
    SHARES_DATA,
    known_categories,
    solved_score,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # The library leaves files open.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

EXECUTORS = {"eval", "exec", "parse_expr", "sympify", "lambdify", "literal_eval"}
"""Functions that execute text, or parse it by executing it."""

SITES_ON_OWN_TEXT = {
    "algebra/intermediate_integration.py: sympy.parse_expr(metadata['integrand'])",
    "algebra/polynomial_multiplication.py: sp.parse_expr(entry['answer'])",
    "algebra/simple_integration.py: sympy.parse_expr(metadata['integrand'])",
    "algorithmic/number_sorting.py: eval(entry['answer'])",
    "arithmetic/basic_arithmetic.py: eval(exp.replace('/', '//'))",
    "arithmetic/bitwise_arithmetic.py: eval(problem)",
    "arithmetic/bitwise_arithmetic.py: eval(problem_str)",
    "arithmetic/gsm_symbolic/generators_00_49.py: eval(rng.choice(fractions))",
    "arithmetic/gsm_symbolic/generators_50_99.py: eval(fraction)",
    "code/codeio.py: exec(full_code)",
}
"""Calls that execute text of the library itself."""

PARSER_OF_ITS_OWN = "logic/propositional_logic.py"
"""Defines a `parse_expr` that executes nothing."""


@pytest.fixture(scope="module")
def library() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        import reasoning_gym.factory
    return reasoning_gym.factory


def executing_calls(source: str) -> Iterator[ast.Call]:
    """Return the calls in a source that execute text."""
    if not any(name in source for name in EXECUTORS):
        return  # parsing all of the library takes seconds
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).split(".")[-1] in EXECUTORS
        ):
            yield node


def names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


async def test_known_categories_match_the_registry(library: ModuleType) -> None:
    assert known_categories() | {"composite": "composite"} == read_registry()
    assert len(known_categories()) == 105


async def test_composite_is_registered_but_has_no_problems(library: ModuleType) -> None:
    for name in NOT_A_TASK:
        assert name in library.DATASETS
        with pytest.raises((AssertionError, ValueError)):
            library.create_dataset(name, seed=0, size=1)


async def test_only_the_listed_tasks_pay_any_answer(
    pool: TaskPool, problems: dict[str, list[Problem]]
) -> None:
    junk = ["qwxz", "none of these at all", "~ ~ ~"]

    async def pays(task: str) -> bool:
        found = [await pool.verify(problem, junk) for problem in problems[task]]
        return all(v.status is Status.SOLVED for verdicts in found for v in verdicts)

    paying = await asyncio.gather(*(pays(task) for task in problems))
    assert {t for t, pay in zip(problems, paying, strict=True) if pay} == set(
        PAYS_ANY_ANSWER
    )


async def test_exactly_the_listed_tasks_run_code_in_an_answer(
    uncontained: TaskPool, problems: dict[str, list[Problem]], tmp_path: Path
) -> None:
    async def answer(task: str) -> None:
        forms = [f"__import__('os').mkdir('{tmp_path}/{task}')"]
        forms += [f"[{forms[0]}]", f"x + {forms[0]}", f'"{forms[0]}"']
        await uncontained.verify(problems[task][0], forms)

    await asyncio.gather(*(answer(task) for task in problems))
    assert {path.name for path in tmp_path.iterdir()} == EXECUTES_ANSWERS


async def test_exactly_the_listed_verifiers_pass_the_answer_to_an_evaluator(
    library: ModuleType,
) -> None:
    """All other evaluators in the library run its own text."""
    folder = Path(inspect.getsourcefile(library) or "").parent
    sources = {path: path.read_text() for path in folder.rglob("*.py")}
    calls = {path: [*executing_calls(source)] for path, source in sources.items()}
    modules = {
        task: inspect.getsourcefile(cls) for task, (cls, _) in library.DATASETS.items()
    }
    handing = {
        task
        for task, module in modules.items()
        for call in calls.get(Path(module or ""), [])
        if "answer" in names_in(call)
    }
    assert handing == EXECUTES_ANSWERS
    others = set()
    for path, found in calls.items():
        name = path.relative_to(folder).as_posix()
        for call in found:
            if name != PARSER_OF_ITS_OWN and "answer" not in names_in(call):
                others.add(
                    f"{name}: {ast.unparse(call.func)}({ast.unparse(call.args[0])})"
                )
    assert others == SITES_ON_OWN_TEXT
    own_parser = folder / PARSER_OF_ITS_OWN
    tree = ast.parse(sources[own_parser])
    defined = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    assert (
        {ast.unparse(call.func) for call in calls[own_parser]}
        == {"parse_expr"}
        <= defined
    )


@pytest.mark.nightly
async def test_construction_draws_or_sets_shared_data_or_refuses_a_seed_in_the_listed_tasks_alone(
    library: ModuleType,
) -> None:
    drawing, sharing, refusing = set(), set(), set()
    for task in known_categories():
        kept = library.create_dataset(task, seed=0, size=1)
        shared = vars(type(kept))
        before = dict(shared)
        fresh = library.create_dataset(task, seed=4321, size=1)
        if any(value is not before.get(name) for name, value in shared.items()):
            sharing.add(task)
        kept.seed = 4321
        ours, theirs = kept[0], fresh[0]
        if (ours["question"], ours["answer"]) != (theirs["question"], theirs["answer"]):
            drawing.add(task)
        try:
            library.create_dataset(task, seed=2**53 - 2, size=1)[0]
        except ValueError:
            refusing.add(task)
    assert drawing == SEEDED_AT_CONSTRUCTION
    assert sharing == SHARES_DATA
    assert refusing == {"pool_matrix"}


async def test_a_task_that_seeds_numpy_takes_any_recipe_seed(pool: TaskPool) -> None:
    assert (await pool.generate(Recipe(task="pool_matrix", seed=2**53 - 2))).question


async def test_items_without_a_usable_oracle_are_not_made(pool: TaskPool) -> None:
    with pytest.raises(GenerationError, match="Integral"):
        await pool.generate(Recipe(task="intermediate_integration", seed=10))


def moved(
    moves: list[tuple[str, str]], board: dict[str, list[str]], pieces: dict[str, Any]
) -> str:
    """Return a cycle of four moves, two of each color, that changes nothing."""
    (first, second), free = moves, [at for at, piece in pieces.items() if not piece]
    there = next(to for to in board[first[1]] if to in free)
    away = next(
        to for to in board[second[1]] if to in free and to not in (there, first[1])
    )
    cycle = [(*first, there), (*second, away), (first[0], there, first[1])]
    return ", ".join(f'"{",".join(m)}"' for m in [*cycle, (second[0], away, second[1])])


def other_forms(problem: Problem) -> tuple[list[str], list[str]]:
    """Return right answers that are paid in part, and near misses."""
    task, oracle, data = (
        problem.recipe.task,
        problem.oracle or "",
        loads(problem.entry)["metadata"],
    )
    if task == "binary_matrix":
        rows = [[int(cell) for cell in row.split()] for row in oracle.split("\n")]
        rows_off_by_one = [[rows[0][0] + 1, *rows[0][1:]], *rows[1:]]
        return [str(rows)], [str(rows_off_by_one)]
    if task in {"futoshiki", "mini_sudoku", "sudoku"}:
        digits = ["".join(map(str, row)) for row in data["solution"]]
        swapped = [digits[0][1] + digits[0][0] + digits[0][2:], *digits[1:]]
        return ["\n".join(digits)], ["\n".join(swapped), "\n".join(digits[:-1])]
    if task == "tower_of_hanoi":
        peg, other = data["start_peg"], data["start_peg"] % data["num_pegs"] + 1
        there, back = f"from Peg {peg} to Peg {other}", f"from Peg {other} to Peg {peg}"
        detour = f"Move disk 1 {there}\nMove disk 1 {back}"
        longer = f"{detour}\n{oracle}"
        return [longer], [detour, longer.rpartition("\n")[0]]
    if task == "polynomial_equations":
        cut, off = (
            ", ".join(f"{float(x) - miss:.4f}" for x in oracle.split(", "))
            for miss in (1e-4, 2e-4)
        )
        return [cut], [off, f"{oracle}, 1"]
    assert task == "knight_swap"
    first = [move.strip('"[]').split(",")[:2] for move in oracle.split(", ")[:2]]
    cycle = moved([(c, at) for c, at in first], data["board"], data["pieces"])
    return [f"[{cycle}, {oracle[1:]}"], [f"[{cycle}]", "no"]


PAID_IN_PART = {t for t in known_categories() if solved_score(t) < 1} - {
    "propositional_logic"
}


@pytest.mark.parametrize("task", sorted(PAID_IN_PART))
async def test_right_answers_of_other_forms_earn_the_least_score_and_near_misses_less(
    pool: TaskPool, task: str
) -> None:
    problem = await pool.generate(Recipe(task=task, seed=2))
    right, wrong = other_forms(problem)
    verdicts = await pool.verify(problem, [problem.oracle or "", *right, *wrong])
    scores = [verdict.score or 0.0 for verdict in verdicts]
    assert scores[0] == 1.0
    assert all(
        solved_score(task) <= score < 1.0 for score in scores[1 : 1 + len(right)]
    )
    assert all(score < solved_score(task) for score in scores[1 + len(right) :])


async def test_no_near_miss_reaches_the_least_score_of_a_grid(pool: TaskPool) -> None:
    for task in ("futoshiki", "mini_sudoku", "sudoku"):
        problem = await pool.generate(Recipe(task=task, seed=4))
        oracle = problem.oracle or ""
        cells = [i for i, character in enumerate(oracle) if character.isdigit()]
        misses = [
            oracle[:i] + str(int(oracle[i]) % 9 + 1) + oracle[i + 1 :] for i in cells
        ]
        verdicts = await pool.verify(problem, misses)
        assert all((verdict.score or 0.0) < solved_score(task) for verdict in verdicts)


async def test_a_variable_that_follows_is_a_right_conclusion(pool: TaskPool) -> None:
    problem = await pool.generate(Recipe(task="propositional_logic", seed=1))
    assert loads(problem.entry)["metadata"]["premises"] == ["Q", "Q", "(Q → P)", "Q"]
    right, *wrong = await pool.verify(problem, ["P", "Q", "¬P", "P → P"])
    assert right.score == solved_score("propositional_logic")
    assert all(
        (verdict.score or 0.0) < solved_score("propositional_logic")
        for verdict in wrong
    )


async def test_a_longer_word_ladder_has_full_credit_and_one_with_an_unknown_word_has_not(
    pool: TaskPool,
) -> None:
    problem = await pool.generate(Recipe(task="word_ladder", seed=2))
    first, second, *rest = (problem.oracle or "").split(",")
    longer = ",".join([first, second, first, second, *rest])
    unknown = next(c for c in "QXZJ" if c not in first) + first[1:]
    verdicts = await pool.verify(
        problem, [longer, ",".join([first, unknown, first, second, *rest])]
    )
    assert verdicts[0].score == 1.0
    assert (verdicts[1].score or 0.0) <= 0.5
    assert solved_score("word_ladder") == 1.0


SETS_A_FORM = {
    "base_conversion": "digits of another base",
    "circuit_logic": "a bit",
    "power_function": "three significant figures",
}
"""Tasks whose answers look like numbers, on these items at least, and why they are none."""

NUMBERS_ON_SOME_ITEMS = {"advanced_geometry", "calendar_arithmetic"}


async def test_exactly_the_listed_tasks_ask_for_a_number(
    problems: dict[str, list[Problem]],
) -> None:
    numeric = {
        task
        for task, both in problems.items()
        if all(
            is_same_number(problem.oracle or "", problem.oracle or "")
            for problem in both
        )
    }
    assert numeric - SETS_A_FORM.keys() == PLAIN_NUMBERS - NUMBERS_ON_SOME_ITEMS


async def test_equal_numbers_are_right_and_near_ones_are_not(
    problems: dict[str, list[Problem]],
) -> None:
    for task in PLAIN_NUMBERS - NUMBERS_ON_SOME_ITEMS:
        oracle = problems[task][0].oracle or ""
        point = "" if "." in oracle else "."
        assert is_same_number(f"{oracle}{point}0", oracle)
        assert not is_same_number(f"{oracle}{point}01", oracle)
        assert (
            not is_same_number(f"{oracle}0{point}", oracle)
            or float(oracle) == 0
            or not point
        )
