"""Notation costs no right answer its verdict, and makes no wrong answer right.

`test_guards.py` compares the labels of all tasks with one another.
"""

import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.records import Problem, Recipe, Status, Verdict
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.grading import verify_texts
from reasoning_gym_environment.scoring.notation import readable_form
from reasoning_gym_environment.tasks.facts import PLAIN_NUMBERS, known_categories

ANGLE = "In triangle ABC with coordinates A=(-4, 6), B=(-5, -4), and C=(5, 8), find the measure (in degrees) of angle ABC."  # noqa: E501 - a question of the library, on one line as there
EQUATION = "Solve for w: 7*w + 9 = 16"
SAME = [
    ("list_functions", "", "[8,60]", "[8, 60]"),
    ("codeio", "", '{"b": [1, 2],\n "a": "x y"}', '{"a": "x y", "b": [1, 2]}'),
    ("codeio", "", "**True**", "true"),
    ("isomorphic_strings", "", "true", "True"),
    ("syllogism", "", "**yes.**", "Yes"),
    ("calendar_arithmetic", "", "friday", "Friday"),
    ("fraction_simplification", "", "17 / 45", "17/45"),
    ("base_conversion", "", "2A9", "2a9"),
    ("rotate_matrix", "", "1 2 \n3\t4", "1 2\n3 4"),
    ("word_sequence_reversal", "", "does,IS", "does, IS"),
    ("number_filtering", "", '["\N{MINUS SIGN}17","4"]', "['-17', '4']"),
    ("ab", "", '"A# #B"', "A# #B"),
    ("simple_equations", EQUATION, "w = 1", "1"),
    ("advanced_geometry", ANGLE, "34.095", "34.09°"),
    ("advanced_geometry", ANGLE, "34.095°", "34.09°"),
    ("advanced_geometry", ANGLE, r"$34.09^\circ$", "34.09°"),
    ("advanced_geometry", ANGLE, r"\(34.095^{\circ}\)", "34.09°"),
    ("simple_geometry", "", r"77^\circ", "77"),
    ("shortest_path", "", "**Infeasible**", "infeasible"),
    ("dice", "", r"\(\tfrac{1}{2}\)", "1/2"),
    ("gcd", "", r"\[ 42 \]", "42"),
    ("codeio", "", "[1, 2.50]", "[1.0, 2.5]"),
    ("codeio", "", "10", "10.0"),
    ("word_sequence_reversal", "", "is,1,science", "is, 1, science"),
]
OTHER = [
    ("list_functions", "", "[8.5,60]", "[8, 60]"),
    ("list_functions", "", "[860]", "[8, 60]"),
    ("list_functions", "", "[true]", "[1]"),
    ("codeio", "", '{"a": "xy"}', '{"a": "x y"}'),
    ("codeio", "", '"5"', "5"),
    ("codeio", "", "[1.5]", "[1]"),
    ("codeio", "", "true", "1.0"),
    ("codeio", "", "1e999", "2.0"),
    ("word_sequence_reversal", "", "1,2, science", "12, science"),
    ("codeio", "", '{"a": "x y"}', '{"a": "x  y"}'),
    ("codeio", "", '"x,y"', '"x, y"'),
    ("codeio", "", '{"a": "1 / 2"}', '{"a": "1/2"}'),
    ("codeio", "", '["\N{MINUS SIGN}"]', '["-"]'),
    ("number_filtering", "", "['17', '4']", "['-17', '4']"),
    ("rotate_matrix", "", "1 2 3 4", "1 2\n3 4"),
    ("products", "", "1, 850", "1850"),
    ("syllogism", "", "yes or no", "Yes"),
    ("fraction_simplification", "", "1 7/45", "17/45"),
    ("dice", "", r"1\frac{7}{45}", "17/45"),
    ("advanced_geometry", ANGLE, r"34.2^\circ", "34.09°"),
    ("shortest_path", "", "Infeasible? up", "infeasible"),
    ("rotate_matrix", "", " 1 2\n34", "1 2\n3 4"),
    ("simple_equations", EQUATION, "x = 1", "1"),
    ("simple_equations", EQUATION, "w = 7*1", "1"),
    ("advanced_geometry", ANGLE, "34.10", "34.09°"),
    ("advanced_geometry", ANGLE, "34.094", "34.09°"),
    ("advanced_geometry", ANGLE, "145.905", "34.09°"),
    ("spell_backward", "", "OLLEh", "olleh"),
    ("a_task_of_your_own", "", "yes", "Yes"),
]


def test_another_notation_of_the_label_is_the_label_and_no_other_answer_is() -> None:
    for task, question, answer, oracle in SAME:
        assert readable_form(task, question, answer, oracle) == oracle, (task, answer)
    for task, question, answer, oracle in OTHER:
        assert readable_form(task, question, answer, oracle) != oracle, (task, answer)


def test_blanks_at_the_ends_of_lines_are_not_part_of_a_board() -> None:
    board = "_ Q _ _ \r\n_ _ _ Q\t\n Q _ _ _\n_ _ Q _"
    read = readable_form("n_queens", "", board, "_ _ Q _")
    assert read == "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q _"


WORDED = sorted(known_categories().keys() - PLAIN_NUMBERS)
"""Tasks whose answers are no plain numbers; `test_tolerance.py` has those."""


@given(
    st.sampled_from(WORDED), *[st.text(" \n'\"`aAtrueYES[]{},:/012", max_size=9)] * 2
)
def test_only_blanks_quotes_and_letter_case_are_notation(
    task: str, answer: str, oracle: str
) -> None:
    if readable_form(task, "", answer, oracle) == oracle:
        letters = [
            re.sub(r"[\s'\"`]", "", text).casefold() for text in (answer, oracle)
        ]
        assert letters[0] == letters[1]


RIGHT = {
    "group_anagrams": ["""oracle.replace('"', "'")"""],
    "palindrome_partitioning": ["""oracle.replace('"', "'")"""],
    "coin_flip": [
        "' / '.join(map(str, float(oracle).as_integer_ratio()))",
        "f'{int(float(oracle) * 2**30)}/2^30'",
    ],
    "countdown": [
        "oracle + ' = ' + target",
        r"r'\(' + oracle.replace('*', r'\times') + r' = ' + target + r'\)'",
        "oracle.replace('*', times).replace('-', minus)",
    ],
    "polynomial_multiplication": ["oracle.replace('**', '^')"],
    "fraction_simplification": [
        r"oracle.strip('$').replace('dfrac', 'tfrac').replace(r'\frac', r'\tfrac')"
    ],
    "prime_factorization": [
        r"r'$' + oracle.replace(times, r'\times') + '$'",
        "oracle.replace(times, 'x')",
        "oracle.replace(f' {times} ', '*')",
    ],
    "puzzle24": [
        "'**' + oracle.replace('*', ' x ') + ' = 24**'",
        "oracle.replace('/', '÷')",
    ],
    "simple_integration": [
        "oracle.replace('**', '^')",
        "oracle.replace('*', '·').replace('··', '^')",
    ],
}
WRONG = {
    "group_anagrams": ["""oracle.replace('"', "'")[:-1]""", "\"[['a']]\""],
    "palindrome_partitioning": ["\"[['a']]\""],
    "coin_flip": ["'1 / 7'", "'3 / 0'", "'1/2^31'"],
    "countdown": [
        *(
            "oracle + ' = 1' + target",
            "oracle + '^1'",
            "oracle + ' + 1 = ' + target",
            "target",
        )
    ],
    "polynomial_multiplication": [
        *("'2*(' + oracle.replace('**', '^') + ')'", "oracle.replace('**', '*')")
    ],
    "fraction_simplification": [r"r'\tfrac{1}{1}'", r"r'\tfrac{7}{9}'"],
    "prime_factorization": [
        *(
            "oracle.replace(times, '+')",
            "'1 x ' + oracle.replace(times, 'x')",
            "'2 x 3 x 5 x 7'",
        )
    ],
    "puzzle24": ["oracle + ' = 25'", "'24 = 24'", "oracle + ' x 1 = 24'", "'24'"],
    "simple_integration": [
        "'2*(' + oracle.replace('**', '^') + ')'",
        "oracle.replace('**', '·')",
    ],
}


@pytest.mark.parametrize("task", sorted(RIGHT))
async def test_other_signs_cost_no_verdict_and_buy_none(
    task: str, pool: TaskPool
) -> None:
    problem = await pool.generate(Recipe(task=task, seed=4))
    oracle = str(problem.oracle)
    target = re.findall(r"(?:equals|make|Calculate) (\d+)", problem.question)
    known = {"oracle": oracle, "target": "".join(target), "minus": "\N{MINUS SIGN}"}
    known["times"] = "\N{MULTIPLICATION SIGN}"
    for expressions, solved in ((RIGHT[task], True), (WRONG[task], False)):
        answers = [str(eval(text, known)) for text in expressions]
        texts = [f"<answer>{answer}</answer>" for answer in answers if answer != oracle]
        graded = await verify_texts(
            problem, texts, pool, any_form=True, answer_format="tags"
        )
        for answer, verdict in graded:
            assert (verdict.status is Status.SOLVED) == solved, answer
            assert verdict.status is not Status.VERIFIER_ERROR
            assert not solved or verdict.credit == 1.0


async def require_solved(
    problem: Problem, pool: TaskPool, solved: Mapping[str, bool]
) -> None:
    """Verify answers in tags, and compare which of them solve the problem."""
    texts = [f"<answer>{answer}</answer>" for answer in solved]
    graded = await verify_texts(
        problem, texts, pool, any_form=True, answer_format="tags"
    )
    found = [verdict.status is Status.SOLVED for _, verdict in graded]
    assert found == [*solved.values()], graded


QUOTED = {
    "number_format": "format(float(oracle), '.15e')",
    "polynomial_equations": "', '.join(f'{float(root):.5f}' for root in oracle.split(','))",
    "power_function": "format(float(oracle), '.3e')",
    "simple_integration": "oracle.replace('**', '^')",
}


@pytest.mark.parametrize("task", sorted(QUOTED))
async def test_quotes_cost_no_verdict_around_another_text_than_the_label(
    task: str, pool: TaskPool
) -> None:
    recipes = [Recipe(task=task, seed=seed) for seed in range(2, 40, 2)]
    problems = [await pool.generate(recipe) for recipe in recipes]
    [problem, *others] = [one for one in problems if one.oracle]
    right = str(eval(QUOTED[task], {"oracle": problem.oracle}))
    assert right != problem.oracle
    wrong = next(one.oracle for one in others if one.oracle != problem.oracle)
    quoted = [f"`{right}`", f'"{right}"', f"'{right}'", f"**`{right}`**"]
    refused = [f"`{wrong}`", f"`{right}` or `{wrong}`", f'"{wrong}" or "{right}"']
    for answers, solved in ((quoted, True), (refused, False)):
        await require_solved(problem, pool, dict.fromkeys(answers, solved))


@pytest.mark.parametrize(
    ("seed", "right"),
    [
        (8371529876755640, "2*x + C"),  # its label is 2*X + C, and no X is asked for
        (5497883311200472, "-10*x"),
        (5497883311200472, "-10*X + C"),
    ],
)
async def test_an_integral_of_a_constant_may_be_given_in_x(
    seed: int, right: str, pool: TaskPool
) -> None:
    levels = (await pool.ladders())["simple_integration"].levels
    recipe = Recipe(task="simple_integration", seed=seed, level=0, parameters=levels[0])
    problem = await pool.generate(recipe)
    solved = {right: True, "3*x + C": False, "x*X": False}
    await require_solved(problem, pool, solved)


@pytest.mark.parametrize(("answer", "times"), [("{}", 1), ("**{}**", 2)])
async def test_no_text_is_verified_twice(answer: str, times: int) -> None:
    seen: list[str] = []

    class Refusing:
        async def verify(
            self, problem: Problem, answers: Sequence[str]
        ) -> list[Verdict]:
            seen.extend(answers)
            return [Verdict(score=0.0, status=Status.WRONG)] * len(answers)

    recipe = Recipe(task="sudoku", seed=1)
    problem = Problem(recipe=recipe, question="", oracle="1 2", entry=b"")
    texts = [f"<answer>{answer.format(n)}</answer>" for n in range(16)]
    await verify_texts(problem, texts, Refusing(), any_form=True, answer_format="tags")
    assert len(seen) == len(set(seen)) == 16 * times


async def test_formatting_costs_no_verdict_where_several_answers_are_right(
    pool: TaskPool,
) -> None:
    problem = await pool.generate(Recipe(task="propositional_logic", seed=5))
    right = "P ∧ ¬S"
    wrong = "¬P"
    forms = ("{}", "**{}**", r"\({}\)", "```\n{}\n```")
    for answer, solved in ((right, True), (wrong, False)):
        answers = [form.format(answer) for form in forms]
        await require_solved(problem, pool, dict.fromkeys(answers, solved))
