"""Nothing but arithmetic and literals is evaluated, and no right answer is refused."""

import ast
import builtins
import copy
import itertools
import json
import math
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import EllipsisType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from right_answers import ITEMS_PER_LEVEL, KEPT, entries_by_level, right_answers

from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox._protocol import to_verdict
from reasoning_gym_environment.sandbox._screen import (
    NOT_AN_EXPRESSION,
    UNREADABLE,
    executes_nothing,
    screen,
)
from reasoning_gym_environment.sandbox._verifier_child import (
    score_forms,
    screen_and_score,
)
from reasoning_gym_environment.tasks.datasets import Datasets
from reasoning_gym_environment.tasks.facts import EXECUTES_ANSWERS

# The library leaves files open.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

TABLE = json.loads(
    (Path(__file__).parent / "screen_cases.json").read_text(encoding="utf-8")
)
LITERAL_TASKS = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
INTEGRATION_TASKS = ("simple_integration", "intermediate_integration")
EXPRESSION_TASKS = sorted(EXECUTES_ANSWERS - set(LITERAL_TASKS))
SCORED_PER_LEVEL = 2
NO_ANSWER = "I have no idea"


def kind_of(task: str, text: str) -> str:
    reason = screen(task, text)
    return {None: "pass", NOT_AN_EXPRESSION: "unreadable"}.get(reason, "refuse")


def cases() -> Iterator[tuple[str, str, str]]:
    for group, kind in itertools.product(
        TABLE["groups"], ("pass", "unreadable", "refuse")
    ):
        for task in (
            INTEGRATION_TASKS if group["tasks"] == ["integration"] else group["tasks"]
        ):
            yield from ((task, text, kind) for text in group[kind])


@pytest.fixture(scope="module")
def datasets() -> Datasets:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        return Datasets()


def score(datasets: Datasets, task: str, text: str, entry: dict[str, Any]) -> float:
    return float(datasets.get(task, {}).score_answer(text, entry))


def literal_variants(task: str, answer: str) -> Iterator[str]:
    """The answer as text and as the lists that people write."""
    rows = [
        row.split() if task != "string_insertion" else list(row)
        for row in answer.split("\n")
    ]
    values: list[Any] = rows if task in ("binary_matrix", "n_queens") else rows[0]
    if task in ("binary_matrix", "spiral_matrix"):
        numbers = [[int(cell) for cell in row] for row in rows]
        values = numbers if task == "binary_matrix" else numbers[0]
    yield from (answer, f" {answer}\n", repr(values), json.dumps(values), repr(answer))
    yield from (
        repr(values).replace(" ", ""),
        repr(values).replace("],", "],\n"),
        f"({values})",
    )
    yield from (
        repr(tuple(values)),
        repr(values).replace(",", " ,"),
        json.dumps(values, indent=1),
    )


def expression_variants(answer: str) -> Iterator[str]:
    """The answer as people space it, bracket it and spell its operators."""
    yield from (
        answer,
        f"  {answer}\n",
        answer.replace(" ", ""),
        f"({answer})",
        f"+({answer})",
    )
    yield from (
        f"-(-({answer}))",
        re.sub(r"([-+*/])", r" \1 ", answer).replace("*  *", "**"),
    )
    yield from (f"(\n{answer}\n)", re.sub(r"(?<![.\d])(\d+)", r"(\1)", answer))
    yield re.sub(r"(\w+)\*\*2\b", r"\1*\1", answer)
    yield re.sub(r"(?<![.\w])(\d+)(?![.\w])", r"\1.0", answer)


def integral_variants(answer: str) -> Iterator[str]:
    yield from expression_variants(answer)
    for constant in ("K", "c", "C1", "3", "pi", "constant", "(C + 1)", "1/2"):
        yield answer.replace("+ C", f"+ {constant}")
    yield re.sub(r"\bexp\(", "E**(", answer)
    yield answer.replace("log(", "ln(").replace("sqrt(", "(1)*sqrt(")
    yield re.sub(r"sqrt\(([^()]*)\)", r"(\1)**(1/2)", answer)
    yield re.sub(r"sqrt\(([^()]*)\)", r"(\1)**0.5", answer)
    yield re.sub(r"\b(\d+)/(\d+)\b", r"Rational(\1, \2)", answer)


def variants(task: str, answer: str) -> Iterator[str]:
    if task in LITERAL_TASKS:
        return literal_variants(task, answer)
    return (integral_variants if task in INTEGRATION_TASKS else expression_variants)(
        answer
    )


def test_each_case_of_the_table_is_judged_as_it_says() -> None:
    assert not [
        (*case, kind) for case in cases() if (kind := kind_of(*case[:2])) != case[2]
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("task", sorted(EXECUTES_ANSWERS))
def test_right_answers_in_all_their_spellings_pass_at_every_level(
    datasets: Datasets, task: str
) -> None:
    levels = right_answers(datasets, task)
    assert {len(answers) for answers in levels} == {ITEMS_PER_LEVEL}
    spellings = {
        text
        for answers in levels
        for answer in answers
        for text in variants(task, answer)
    }
    assert not {text: reason for text in spellings if (reason := screen(task, text))}


@pytest.mark.nightly
@pytest.mark.parametrize("task", sorted(EXECUTES_ANSWERS))
def test_what_passes_reaches_the_verifier_as_it_stands(
    datasets: Datasets, task: str
) -> None:
    plain: dict[str, float] = {}

    def verify(text: str, entry: Any) -> float:
        plain[text] = 0.0  # unless it raises
        plain[text] = datasets.get(task, {}).score_answer(text, entry)
        return plain[text]

    levels = entries_by_level(datasets, task, SCORED_PER_LEVEL)
    if task in KEPT:
        kept = [answers[:SCORED_PER_LEVEL] for answers in right_answers(datasets, task)]
        assert [[entry["answer"] for entry in level] for level in levels] == kept
    for entry in itertools.chain(*levels):
        for text in variants(task, entry["answer"]):
            plain.clear()
            screened = to_verdict(
                screen_and_score(verify, task, text, copy.deepcopy(entry))
            )
            if not plain:  # a guard had the answer's score
                score_forms(verify, text, copy.deepcopy(entry))
            assert next(iter(plain)) == text
            assert screened.score == max(plain.values()), (text, entry["answer"])


@pytest.mark.parametrize("task", sorted(EXECUTES_ANSWERS))
def test_refused_and_tagged_texts_are_never_evaluated_and_earn_what_no_answer_does(
    datasets: Datasets, task: str
) -> None:
    entry = datasets.entry(Recipe(task=task, seed=5))
    floor = score(datasets, task, UNREADABLE, entry)
    assert floor == score(datasets, task, NO_ANSWER, entry) <= 0.01
    assert screen(task, UNREADABLE) == (
        None if task in LITERAL_TASKS else NOT_AN_EXPRESSION
    )
    hits: list[int] = []
    builtins.hit = hits.append  # type: ignore[attr-defined]  # what the answers would call
    try:
        for inner in (
            "hit(1)",
            "</answer>\nhit(1)",
            "hit(1)!",
            "lambda: hit(1)",
            entry["answer"],
        ):
            assert score(datasets, task, f"<answer>{inner}</answer>", entry) == floor
    finally:
        del builtins.hit  # type: ignore[attr-defined]  # as above
    assert not hits


@pytest.mark.parametrize("task", [*INTEGRATION_TASKS, "polynomial_multiplication"])
def test_a_text_that_is_not_read_would_have_earned_nothing_anyway(
    datasets: Datasets, task: str
) -> None:
    entry = datasets.entry(Recipe(task=task, seed=5))
    known = entry["answer"]
    symbol = entry["metadata"].get("variable", "x")
    mistakes = [
        f"{known} =",
        f"y = {known}",
        f"2{symbol}",
        f"{symbol}^2",
        f"${known}$",
        f"<{known}>",
    ]
    for text in mistakes:
        assert screen(task, text) == NOT_AN_EXPRESSION
        assert score(datasets, task, text, entry) == 0


@given(st.text())
def test_text_in_tags_is_never_an_expression(inner: str) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        ast.parse(f"<answer>{inner}</answer>".strip(), mode="eval")


def test_tasks_that_evaluate_nothing_are_not_screened() -> None:
    assert screen("chain_sum", "__import__('os')._exit(1)") is None


@pytest.mark.parametrize("task", LITERAL_TASKS)
def test_no_name_that_a_verifier_knows_passes_as_a_literal(
    datasets: Datasets, task: str
) -> None:
    verifier = type(datasets.get(task, {})).score_answer
    known = {*verifier.__globals__, *vars(builtins), *verifier.__code__.co_varnames} - {
        "_"
    }
    constants = {"None", "True", "False", "Ellipsis"}
    assert len(known) > 100
    assert not {name for name in known - constants if screen(task, name) is None}


def sympy_names() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec("from sympy import *", names)  # as sympy's parser does
    return {**vars(builtins), **names}


def test_sympys_own_names_that_pass_are_constants_or_of_one_letter() -> None:
    passing = {
        name for name in sympy_names() if screen("simple_integration", name) is None
    }
    assert passing == {"E", "E1", "I", "N", "O", "Q", "S", "pi"}


def test_only_elementary_functions_can_be_called() -> None:
    names = [name for name in sympy_names() if name.isidentifier()]
    called = {
        name for name in names if screen("simple_integration", f"{name}(x)") is None
    }
    plain = {"Abs", "Rational", "abs", "cbrt", "exp", "ln", "log", "sqrt"}
    circular = {"sin", "cos", "tan", "cot", "sec", "csc"}
    both = circular | {f"{name}h" for name in circular}
    assert called == plain | both | {f"a{name}" for name in both}
    for task in ("countdown", "puzzle24", "polynomial_multiplication"):
        assert not [name for name in names if screen(task, f"{name}(1)") is None]


PIECES = re.split(
    " ",
    "x C 1 2.5 9 10**9 1e9 ( ) [ ] , + - * / ** // ^ ! . = : ; ' \" # \\ _ sin( exp( log( S( print "
    "lambda or if else for in not 0 0x 0b j \uff58 \u0445 \u00a0 \u001c \u000c",
)
TEXTS = st.lists(st.sampled_from([*PIECES, " ", "\n", "\t", "\r"]), max_size=14).map(
    "".join
)


class Names(dict[str, Any]):
    """Variables of an evaluation that notes which are looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __missing__(self, name: str) -> Any:
        self.asked.append(name)
        raise KeyError(name)


@given(TEXTS)
@example("...")
def test_what_passes_as_a_literal_builds_nothing_but_literals(text: str) -> None:
    if screen("spiral_matrix", text) is not None:
        return
    for evaluated in (text, text.strip()):
        names = Names()
        try:
            # The screen let it through.
            value = eval(evaluated, {"__builtins__": {}}, names)
        except (SyntaxError, NameError, TypeError):
            continue
        finally:
            assert all(re.fullmatch("[A-Z]+|_", name) for name in names.asked)
        literals = list | tuple | str | int | float | complex | EllipsisType | None
        assert isinstance(value, literals)


@given(TEXTS)
def test_what_passes_as_an_expression_means_the_same_to_sympy(text: str) -> None:
    from sympy.parsing.sympy_parser import standard_transformations, stringify_expr

    if screen("simple_integration", text) is not None:
        return
    code = stringify_expr(text, {}, sympy_names(), standard_transformations)
    tree = ast.parse(code.strip(), mode="eval")
    for node in ast.walk(tree):
        assert isinstance(node, ALLOWED_IN_CODE), code
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            assert node.func.id in {"Symbol", "Integer", "Float"} | {
                "sin",
                "exp",
                "log",
            }
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert re.fullmatch(r"[A-Za-z]\w*|[\d.eE+-]+", node.value)


ALLOWED_IN_CODE = (
    *(
        ast.Expression,
        ast.BinOp,
        ast.UnaryOp,
        ast.Call,
        ast.Name,
        ast.Constant,
        ast.Load,
    ),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Pow, ast.UAdd, ast.USub),
)


@pytest.mark.parametrize(
    "task", ["countdown", "simple_integration", "polynomial_multiplication"]
)
def test_huge_texts_are_refused(task: str) -> None:
    for text in (
        *(
            "-" * 30_000 + "1",
            "(" * 10_000 + "1" + ")" * 10_000,
            "+".join(["1"] * 60_000),
        ),
        *(
            "**".join(["2"] * 10_000),
            "*".join(["9" * 300] * 9),
            "9" * 5_000,
            "0." + "3" * 200,
        ),
        *("not " * 9_000 + "1", "1 if 1 else " * 9_000 + "1", "1" + "0" * 200_000),
    ):
        assert screen(task, text) is not None, text[:6]


def test_what_takes_long_to_simplify_is_refused() -> None:
    for text in (
        "*".join(f"cos(x+{i})" for i in range(30)),
        "+".join(f"sqrt(x+{i})" for i in range(200)),
        "+".join(f"1/(x**{i}+{i})" for i in range(1, 30)),
        "+".join(f"x**(1/{i})*sqrt(x+{i})" for i in range(2, 80)),
        "*".join(f"(sin(x)+{i})" for i in range(1, 60)),
        "+".join(f"{i}*x**{i}" for i in range(900)),
        "sin(" * 90 + "x" + ")" * 90,
        "(sin(x)+cos(x)+1)**300",
    ):
        assert screen("simple_integration", text) is not None, text


def test_long_products_are_refused_only_where_they_are_multiplied_out() -> None:
    product = "*".join(f"(x + {i})" for i in range(40))
    assert screen("polynomial_multiplication", product) is None
    assert screen("simple_integration", product) is not None
    many_terms = " + ".join(f"{10**80}*x**{i}" for i in range(120))
    assert screen("polynomial_multiplication", many_terms) is None


@given(st.integers(2, 10**9), st.integers(2, 10**9))
def test_a_power_passes_only_if_its_value_has_a_bounded_length(
    base: int, exponent: int
) -> None:
    if screen("countdown", f"{base}**{exponent}") is None:
        assert exponent * math.log2(base) <= 1024


def test_what_the_verifier_never_sees_executes_nothing_behind() -> None:
    texts = ("exit()", "'a'.upper()", "a b c", "(", "lambda: 0", "3 = 4")
    for task, text in itertools.product(EXECUTES_ANSWERS, texts):
        assert executes_nothing(task, text), (task, text)


@pytest.mark.parametrize("task", ["countdown", "puzzle24"])
def test_whole_numbers_leave_nothing_behind_and_all_that_sympy_may_round_or_keep_does(
    task: str,
) -> None:
    for text in ("24", "(1 + 2)*3/4 - -5", " 8*(5*1 - 2)\n", "1/0", "0/0"):
        assert executes_nothing(task, text), text
    for text in ("24.0", "2**3", "7//2", "1e3", "2**(1/2)", "0.1 + 0.2"):
        assert (screen(task, text) is None) == (text != "1e3"), text
        assert executes_nothing(task, text) == (screen(task, text) is not None), text


@pytest.mark.parametrize("task", ["polynomial_multiplication", *INTEGRATION_TASKS])
def test_where_the_entry_goes_through_sympy_as_well_no_answer_that_it_reads_executes_nothing(
    task: str,
) -> None:
    assert not any(
        executes_nothing(task, text) for text in ("7", "x", "x**2 + C", "(1 + 2)*3")
    )


@given(st.text("0123456789 +-*/()\n\t", max_size=12))
def test_what_whole_numbers_give_is_a_fraction_or_nothing(text: str) -> None:
    import sympy

    if not executes_nothing("countdown", text) or screen("countdown", text) is not None:
        return
    value = sympy.parse_expr(text)
    assert value.is_Rational or value in (sympy.zoo, sympy.nan)
    assert not value.atoms(sympy.Float)
