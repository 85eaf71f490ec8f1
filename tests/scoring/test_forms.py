"""Notation costs no right answer its verdict, and makes no wrong answer right.

`test_guards.py` compares the labels of all tasks with one another.
"""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.records import Problem, Recipe, Status, Verdict
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.extraction import readable_form
from reasoning_gym_environment.scoring.grading import verify_texts
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
]
OTHER = [
    ("list_functions", "", "[8.5,60]", "[8, 60]"),
    ("list_functions", "", "[860]", "[8, 60]"),
    ("list_functions", "", "[true]", "[1]"),
    ("codeio", "", '{"a": "xy"}', '{"a": "x y"}'),
    ("codeio", "", '"5"', "5"),
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
    "coin_flip": ["' / '.join(map(str, float(oracle).as_integer_ratio()))"],
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
    "coin_flip": ["'1 / 7'", "'3 / 0'"],
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
        for pay in (False, True):
            graded = await verify_texts(
                problem, texts, pool, answer_tolerance=pay, any_form=True
            )
            for answer, verdict in graded:
                assert (verdict.status is Status.SOLVED) == solved, answer
                assert verdict.status is not Status.VERIFIER_ERROR
                assert not (solved and pay) or verdict.score == 1.0


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
    for tolerance in (False, True):
        seen.clear()
        await verify_texts(
            problem, texts, Refusing(), answer_tolerance=tolerance, any_form=True
        )
        assert len(seen) == len(set(seen)) == 16 * times


async def test_formatting_costs_no_verdict_where_several_answers_are_right(
    pool: TaskPool,
) -> None:
    problem = await pool.generate(Recipe(task="propositional_logic", seed=5))
    right = "P ∧ ¬S"
    wrong = "¬P"
    forms = ("{}", "**{}**", r"\({}\)", "```\n{}\n```")
    for answer, solved in ((right, True), (wrong, False)):
        texts = [f"<answer>{form.format(answer)}</answer>" for form in forms]
        graded = await verify_texts(
            problem, texts, pool, answer_tolerance=False, any_form=True
        )
        found = [verdict.status is Status.SOLVED for _, verdict in graded]
        assert found == [solved] * len(forms), graded
