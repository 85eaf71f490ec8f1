"""The guards against the installed reasoning-gym: what they take, and that it's never too much."""

import copy
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import pytest

from reasoning_gym_environment.proof.findings import known_weaknesses
from reasoning_gym_environment.records import FaultKind, Recipe
from reasoning_gym_environment.scoring.extraction import less_formatted
from reasoning_gym_environment.scoring.guards import GUARDS, max_score
from reasoning_gym_environment.scoring.guards.algorithmic import given_numbers
from reasoning_gym_environment.scoring.notation import readable_form
from reasoning_gym_environment.tasks.datasets import Datasets
from reasoning_gym_environment.tasks.facts import known_categories, solved_score
from reasoning_gym_environment.tasks.item_checks import item_fault
from reasoning_gym_environment.tasks.ladders import build_ladders

# The library leaves files open.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

MANY, FEW = 40, 4
SLOW = {"futoshiki", "knight_swap", "sokoban"}
"""An item takes half a second: fewer of them."""

ALL_TASKS = sorted(known_categories())
CASES = json.loads((Path(__file__).parent / "guard_cases.json").read_text("utf-8"))

SPELLINGS = (
    *(
        "{}",
        " {} ",
        "{}\n",
        "{}.",
        "({})",
        "**{}**",
        "${}$",
        r"\boxed{{{}}}",
        "```\n{}\n```",
    ),
    *("Answer: {}", "The answer is {}."),
)
"""How any right answer might be written."""

NUMBER_SPELLINGS = ("+{}", "0{}", "{}.0", "{}.00")
"""How a right number might be written."""


def tasks_of(kind: str) -> list[str]:
    return sorted({case["task"] for case in CASES[kind]})


def answers_of(kind: str, task: str) -> Iterator[tuple[int, str]]:
    """Yield the seed and the expression of each answer to a task."""
    for case in CASES[kind]:
        if case["task"] == task:
            yield from ((case.get("seed", 0), answer) for answer in case["answers"])


class Items:
    """Default items by task and seed, each generated once, and their verifiers."""

    def __init__(self) -> None:
        self._datasets = Datasets()
        self._entries: dict[tuple[str, int], Any] = {}

    def entry(self, task: str, seed: int) -> Mapping[str, Any]:
        if (task, seed) not in self._entries:
            self._entries[task, seed] = self._datasets.entry(
                Recipe(task=task, seed=seed)
            )
        entry: Mapping[str, Any] = self._entries[task, seed]
        return entry

    def entries(self, task: str, count: int) -> list[Mapping[str, Any]]:
        return [
            self.entry(task, seed) for seed in range(FEW if task in SLOW else count)
        ]

    def answerable(self, task: str) -> list[Mapping[str, Any]]:
        """Many items, without those that have no right answer."""
        return [entry for entry in self.entries(task, MANY) if has_answer(task, entry)]

    def verified(self, task: str, answer: str, entry: Mapping[str, Any]) -> float:
        """What the verifier alone pays; nothing where it raises."""
        try:
            return float(self.score(task)(answer, copy.deepcopy(entry)))
        except (ValueError, TypeError, KeyError, IndexError, ArithmeticError):
            return 0.0

    def score(self, task: str) -> Any:
        return self._datasets.get(task, {}).score_answer


@pytest.fixture(scope="module")
def items() -> Iterator[Items]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield Items()


def has_answer(task: str, entry: Mapping[str, Any]) -> bool:
    if task == "propositional_logic":
        return item_fault(task, entry) is None
    return "Integral(" not in right_answer(entry)  # an oracle that is not evaluated


def right_answer(entry: Mapping[str, Any]) -> str:
    premises = [f"({text})" for text in entry["metadata"].get("premises", ())]
    right: str = entry["answer"] or " ∧ ".join(premises)
    return right


def written(answer: str, entry: Mapping[str, Any]) -> str:
    """The answer that a case's expression stands for."""
    names = {"oracle": entry["answer"], "json": json, **entry}
    text = eval(answer, names)
    assert isinstance(text, str)
    return text


def walked(entry: Mapping[str, Any]) -> list[dict[str, str]]:
    """A plan for `boxnet` that takes one box after the other to its target."""
    squares = {
        tuple(map(float, k.split("_"))): v
        for k, v in entry["metadata"]["initial_state"].items()
    }
    targets = [
        (what, at) for at, held in squares.items() for what in held if what[0] == "t"
    ]
    steps = []
    for at, box in [
        (at, what) for at, held in squares.items() for what in held if what[0] == "b"
    ]:
        goal = next(t for t in targets if t[0] == box.replace("box", "target"))
        targets.remove(goal)
        (row, column), (last_row, last_column) = at, goal[1]
        while (row, column) != (last_row, last_column):
            agent = f"Agent[{row}, {column}]"
            if row != last_row:
                row += 1 if last_row > row else -1
            else:
                column += 1 if last_column > column else -1
            steps.append({agent: f"move({box}, square[{row}, {column}])"})
        steps.append({f"Agent[{row}, {column}]": f"move({box}, {goal[0]})"})
    return steps


def assert_lowers_no_right_answer(
    items: Items, task: str, answer: str, entry: Mapping[str, Any]
) -> None:
    if max_score(task, answer, entry) < 1.0:
        assert items.verified(task, answer, entry) < 1.0, (answer, entry["answer"])


@pytest.mark.parametrize("task", tasks_of("degenerate"))
def test_a_degenerate_answer_earns_less_than_the_verifier_alone_pays(
    items: Items, task: str
) -> None:
    for seed, answer in answers_of("degenerate", task):
        entry = items.entry(task, seed)
        text = written(answer, entry)
        limit = max_score(task, text, entry)
        if sys.version_info >= (3, 11) or "_" not in text:  # of the verifier's Fraction
            assert limit < items.verified(task, text, entry), answer
        assert limit <= 0.1, answer


@pytest.mark.nightly
@pytest.mark.parametrize("task", sorted(GUARDS))
def test_no_guard_lowers_a_right_answer_however_it_is_written(
    items: Items, task: str
) -> None:
    for entry in items.answerable(task):
        right = right_answer(entry)
        assert GUARDS[task](right, entry) == 1.0
        is_number = right.removeprefix("-").replace(".", "").isdigit()
        for spelling in SPELLINGS + (NUMBER_SPELLINGS if is_number else ()):
            if "." in right and spelling.endswith("0"):
                continue  # `1.5.0` is no number
            assert_lowers_no_right_answer(items, task, spelling.format(right), entry)
        for _, answer in answers_of("legitimate", task):
            assert_lowers_no_right_answer(items, task, written(answer, entry), entry)


def test_an_oracle_that_the_guard_would_refuse_is_still_right() -> None:
    entry: dict[str, Any] = {
        "answer": "Integral(x, x) + C",
        "metadata": {"variable": "x"},
    }
    assert max_score("intermediate_integration", entry["answer"], entry) == 1.0
    assert max_score("intermediate_integration", "Integral(x, x)", entry) == 0.0


def test_a_plan_loses_nothing_unless_it_lists_moves_that_cant_be_made(
    items: Items,
) -> None:
    for entry in items.answerable("boxnet"):
        steps = walked(entry)
        assert items.verified("boxnet", json.dumps(steps), entry) == 1.0
        assert max_score("boxnet", json.dumps(steps), entry) == 1.0
        idle = [{"Agent[0.5, 0.5]": "move(box_pink, target_pink)"}] * len(steps)
        assert max_score("boxnet", json.dumps(idle + steps), entry) == 0.5


def test_a_conclusion_shorter_than_the_premises_it_rests_on_loses_nothing(
    items: Items,
) -> None:
    entry = items.entry("propositional_logic", 5)
    assert entry["metadata"]["premises"] == ["¬(P ↔ S)", "P", "P"]
    for answer in (
        "P ∧ ¬S",
        "¬S ∧ P",
        "¬S",
        "¬(S \N{LOGICAL OR} ¬P)",
        "¬(P → S)",
        "S → Q",
    ):
        assert items.verified("propositional_logic", answer, entry) == 1.0, answer
        assert max_score("propositional_logic", answer, entry) == 1.0, answer


OR = "\N{LOGICAL OR}"
CONNECTIVES = {"¬": "True^", "∧": " and ", OR: " or ", "→": "<=", "↔": "=="}
"""Python's operators on bools, each weaker than those before it; formulas have all brackets."""


def truths(formula: str, names: Sequence[str]) -> list[bool]:
    """The truth table of a formula."""
    for sign, python in CONNECTIVES.items():
        formula = formula.replace(sign, python)
    code = compile(formula, "formula", "eval")
    rows = product((False, True), repeat=len(names))
    return [eval(code, dict(zip(names, row, strict=True))) for row in rows]


def follows(table: Sequence[bool], *sources: Sequence[bool]) -> bool:
    return all(
        holds for holds, *given in zip(table, *sources, strict=True) if all(given)
    )


def is_right_conclusion(formula: str, metadata: Mapping[str, Any]) -> bool:
    """Whether it follows from all premises, and neither from one nor from any variable."""
    names = metadata["variables"]
    table = truths(formula, names)
    premises = [truths(premise, names) for premise in metadata["premises"]]
    asked = [name for name in names if name in "".join(metadata["premises"])]
    any_variable = truths(f"({OR.join(asked)})", names)
    at_once = [*premises, any_variable]
    return (
        follows(table, *premises)
        and not all(table)
        and not any(follows(table, source) for source in at_once)
    )


def random_formula(draw: Random, names: Sequence[str], depth: int) -> str:
    if depth == 0:
        return draw.choice(["", "¬"]) + draw.choice(names)
    left, right = (random_formula(draw, names, depth - 1) for _ in range(2))
    return draw.choice(["", "¬"]) + f"({left}{draw.choice('∧→↔' + OR)}{right})"


def conclusions(draw: Random, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Statements of which some follow from the premises, in many ways."""
    names, premises = metadata["variables"], metadata["premises"]
    joined = premises[0]
    for premise in premises[1:]:
        joined = f"({joined}∧{premise})"
    yield joined
    yield metadata["example_answer"]
    for premise in premises:
        yield f"({premise}{OR}{draw.choice(names)})"
        yield f"({joined}↔{premise})"
    for depth in (0, 1, 1, 2, 2, 2):
        statement = random_formula(draw, names, depth)
        yield statement
        yield f"({joined}{OR}{statement})"
        yield f"({draw.choice(premises)}∧{statement})"


def test_conclusions_are_right_exactly_as_truth_tables_say(items: Items) -> None:
    [ladder] = build_ladders(["propositional_logic"]).values()
    datasets, draw = Datasets(), Random(0)
    judged: Counter[bool] = Counter()
    for (level, parameters), seed in product(enumerate(ladder.levels), range(3)):
        recipe = Recipe(
            task="propositional_logic", seed=seed, level=level, parameters=parameters
        )
        entry = datasets.entry(recipe)
        right = {
            text: is_right_conclusion(text, entry["metadata"])
            for text in conclusions(draw, entry["metadata"])
        }
        fault = item_fault("propositional_logic", entry)
        is_unanswerable = fault is not None and fault.kind is FaultKind.UNANSWERABLE
        assert is_unanswerable or any(right.values())
        for text, is_right in right.items():
            earned = min(
                max_score("propositional_logic", text, entry),
                items.verified("propositional_logic", text, entry),
            )
            assert (earned >= solved_score("propositional_logic")) == is_right, text
            judged[is_right] += 1
    assert min(judged.values()) > 40


@pytest.mark.parametrize(
    "answer", [OR.join("abcdefghijklmnopqrstuvwxyz"), "¬" * 998 + "P", "(" * 900]
)
def test_a_hostile_conclusion_earns_nothing_within_the_deadline(
    items: Items, answer: str
) -> None:
    entry = items.entry("propositional_logic", 1)
    began = process_time()
    assert max_score("propositional_logic", answer, entry) == 0.0
    assert process_time() - began < 5.0


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\N{NO-BREAK SPACE}"])
def test_blanks_in_an_angle_take_no_time(items: Items, blank: str) -> None:
    entry = next(
        entry
        for entry in items.entries("advanced_geometry", MANY)
        if entry["metadata"]["task_type"] == "angle_measure"
    )
    blanks = blank * 100_000
    began = process_time()
    for answer in (f"5{blanks}x", f"{blanks}5", f"5°{blanks}x°", blanks):
        assert max_score("advanced_geometry", answer, entry) < 1.0
    assert process_time() - began < 5.0


def test_a_word_spelled_backward_with_a_sign_after_it_is_never_whole(
    items: Items,
) -> None:
    paid = []
    for entry in items.entries("spell_backward", MANY):
        text = entry["answer"] + "%"
        paid.append(items.verified("spell_backward", text, entry))
        assert max_score("spell_backward", text, entry) == 0.8
    assert max(paid) >= 1.0 > min(paid)  # by its length


def test_a_probability_is_paid_by_relative_error_at_every_level() -> None:
    """The verifier's absolute 1e-4 is more than the smallest probabilities."""
    [ladder] = build_ladders(["coin_flip"]).values()
    datasets, levels = Datasets(), enumerate(ladder.levels)
    for (level, parameters), seed in product(levels, range(MANY)):
        recipe = Recipe(task="coin_flip", seed=seed, level=level, parameters=parameters)
        entry = datasets.entry(recipe)
        right = float(entry["answer"])
        for wrong in (0.0001, 0.00013, 2 * right, right + 1e-4):
            if abs(wrong - right) > 0.01 * right:
                assert max_score("coin_flip", repr(wrong), entry) < 1, (right, wrong)
        for form in (repr(right), f"{right:.3e}", f"{right:.6g}"):
            assert max_score("coin_flip", form, entry) == 1, (right, form)


def test_natural_forms_of_a_probability_are_right(items: Items) -> None:
    entry = items.entry("coin_flip", 1)
    rational = entry["metadata"]["rational"]
    percent = f"{float(entry['answer']):.4%}"
    fraction = rf"\frac{{{rational['numerator']}}}{{{rational['denominator']}}}"
    for form in (percent, percent.replace("%", r"\%"), fraction, f"${fraction}$"):
        text = readable_form("coin_flip", entry["question"], form, entry["answer"])
        assert items.verified("coin_flip", text, entry) == 1.0, form
        assert max_score("coin_flip", text, entry) == 1.0, form


@pytest.mark.parametrize("task", tasks_of("accepted"))
def test_what_is_accepted_is_still_paid(items: Items, task: str) -> None:
    assert task in known_weaknesses()
    for seed, answer in answers_of("accepted", task):
        entry = items.entry(task, seed)
        text = written(answer, entry)
        assert (
            min(items.verified(task, text, entry), max_score(task, text, entry)) >= 0.1
        ), answer


def test_every_guard_has_a_degenerate_case_or_the_default_scoring() -> None:
    shown = {case["task"] for case in CASES["degenerate"]}
    default = GUARDS["caesar_cipher"]
    assert {task for task, guard in GUARDS.items() if guard is not default} <= shown
    assert {*tasks_of("legitimate")} <= GUARDS.keys()


def test_exactly_the_tasks_with_the_default_scoring_have_its_guard(
    items: Items,
) -> None:
    from reasoning_gym.dataset import ProceduralDataset

    default = {
        task
        for task in ALL_TASKS
        if items.score(task).__func__ is ProceduralDataset.score_answer
    }
    guarded = {t for t, g in GUARDS.items() if g is GUARDS["caesar_cipher"]}
    assert guarded == default


def test_guards_and_accepted_faults_are_known_tasks_and_carry_a_reason() -> None:
    assert set(GUARDS) | set(known_weaknesses()) <= set(ALL_TASKS)
    assert all(
        (guard.__doc__ or "").rstrip().endswith(".") for guard in GUARDS.values()
    )
    assert all(any(c.isdigit() for c in fault) for fault in known_weaknesses().values())


def test_no_denies_a_number_unless_it_tells_more_of_it() -> None:
    for more in (" (no remainder)", " eggs, no more", ": no digits are left"):
        assert max_score("gcd", f"42{more}", {"answer": "42"}) == 1.0, more
    denials = (
        "42? No.",
        "no 42",
        "no, 42",
        "42, no way",
        "42 is no solution",
        "42 is no longer it",
    )
    for denied in denials:
        assert max_score("gcd", denied, {"answer": "42"}) == 0.0, denied
    assert max_score("aiw", "no Zoey is it", {"answer": "Zoey"}) == 0.0


def test_an_unguarded_task_has_no_limit() -> None:
    assert max_score("dice", "anything", {"answer": "1/2", "metadata": {}}) == 1.0


HOSTILE = [
    *(
        "",
        " ",
        "{",
        "[" * 4000,
        "(" * 3990 + "P" + ")" * 3990,
        "¬" * 300 + "P",
        "¬" * 900 + "P",
    ),
    *(
        "P → " * 240 + "P",
        "-" * 9000 + "1",
        "1e999999999",
        "1/0",
        "9" * 5000 + ":00",
        "9" * 5000,
    ),
    *(
        '{"a":' * 1300 + "1" + "}" * 1300,
        "nan, inf",
        "None",
        "[null]",
        "[[1], 2, {}]",
        "\0",
    ),
    *("\ud800", "٣ \u00d7 ²"),
]


def test_no_answer_makes_a_guard_raise(items: Items) -> None:
    for task, answer in product(sorted(GUARDS), HOSTILE):
        limit = max_score(task, answer, items.entry(task, 1))
        assert 0.0 <= limit <= 1.0, (task, ascii(answer[:12]))


@pytest.mark.nightly
def test_the_oracle_of_each_task_is_found_within_formatting(items: Items) -> None:
    forms = [
        form
        for form in SPELLINGS
        if form not in ("{}", "({})", "{}.", "The answer is {}.")
    ]
    oracles = (
        entry["answer"] for task in ALL_TASKS for entry in items.entries(task, 8)
    )
    for right in filter(None, map(str.strip, filter(None, oracles))):
        for form in forms:
            text = form.format(right)
            if "boxed" in form and ("{" in right or "}" in right):
                continue  # braces in an answer may be unbalanced
            if form == "${}$" and right.startswith("$"):
                continue  # together they are another mark
            assert right in (text.strip(), *less_formatted(text)), text
    for task in ALL_TASKS:  # and no label is another one but for its notation
        entries = items.entries(task, 8)
        labels = {
            entry["answer"]: entry["question"] for entry in entries if entry["answer"]
        }
        for one, other in permutations(labels, 2):
            assert readable_form(task, labels[other], one, other) != other


def test_ten_right_letters_of_a_longer_word_have_no_full_credit() -> None:
    entry = {"answer": "CRIMINATORY"}
    assert max_score("figlet_font", "CRIMINATOR", entry) == 10 / 11
    assert max_score("figlet_font", "CRIMINATORS", entry) == 10 / 11
    assert max_score("figlet_font", "criminatory", entry) == 1.0


def test_a_decimal_result_has_all_digits_and_no_wrong_ones() -> None:
    question = (
        "Please solve this problem to a maximum of 12 significant digits, rounding up."
    )
    for label, right, wrong in (
        (
            "5.647104",
            ["5.6471040", "5.647104E0"],
            ["5.647704", "5.647105", "5.648", "5.6471", "5.65"],
        ),
        (
            "0.366662044099",
            ["0.36666204409900", "0.3666620440987"],
            ["0.366533062", "0.366662044100", "0.367", "0.3666620"],
        ),
        ("-3.10", ["-3.1"], []),
        ("1E-7", ["0.0000001"], ["0", "0.0000", "0.0000000"]),
        ("5.64", [], ["NaN", "Infinity", "five", "1e-999999999"]),
    ):
        entry = {"answer": label, "question": question}
        for answers, most in ((right, 1.0), (wrong, 0.0)):
            found = {
                answer: max_score("decimal_arithmetic", answer, entry)
                for answer in answers
            }
            assert found == dict.fromkeys(answers, most)


def test_an_integer_too_large_for_a_float_is_left_to_the_verifier() -> None:
    entry = {"metadata": {"sorted_numbers": ["1"]}}
    assert given_numbers(f"[{'9' * 310}]", entry) == 1.0


def test_an_object_that_repeats_a_key_is_no_answer(items: Items) -> None:
    for entry in items.entries("boxnet", FEW):
        steps = json.dumps(walked(entry))
        twice = steps.replace("{", '{"Agent[0.5, 0.5]": 1, "Agent[0.5, 0.5]": 2, ', 1)
        assert items.verified("boxnet", steps, entry) == 1.0
        assert max_score("boxnet", twice, entry) == 0.0
    lock = items.entry("quantum_lock", 0)
    pressed = lock["answer"].split(" → ")
    buttons = ", ".join(f'"{button}": 0' for button in pressed)
    twice = f"{{{buttons}}}"
    assert len(set(pressed)) < len(pressed)
    assert items.verified("quantum_lock", twice, lock) == 1.0
    assert max_score("quantum_lock", twice, lock) == 0.0
    for deep in ("[" * 200_000, '{"a": {"b": 1}, "c": {"b": 1}}'):
        assert max_score("graph_color", deep, {"answer": None}) == 1.0


TOLERANT = {
    "advanced_geometry": 0.1,
    "coin_flip": 1e-12,
    "complex_arithmetic": 0.1,
    "decimal_arithmetic": 1e-6,
    "number_format": 1,
    "polynomial_equations": 0.01,
    "pool_matrix": 0.3,
    "power_function": 1e-12,
}
"""Tasks whose verifiers compare numbers with a tolerance, and their smallest number of which one
percent more can't be a rounding: each question says to how many places."""


@pytest.mark.nightly
@pytest.mark.parametrize("task", sorted(TOLERANT))
def test_no_tolerance_solves_another_number_at_any_level(
    items: Items, task: str
) -> None:
    """The labels of some levels lie closer together than the verifiers' tolerances."""
    [ladder] = build_ladders([task]).values()
    datasets, levels = Datasets(), enumerate(ladder.levels)
    tried = 0
    for (level, parameters), seed in product(levels, range(MANY)):
        recipe = Recipe(task=task, seed=seed, level=level, parameters=parameters)
        entry = datasets.entry(recipe)
        number = re.search(r"\d+(\.\d+)?(e-?\d+)?", entry["answer"])
        if "/" in entry["answer"] or number is None:
            continue
        if float(number[0]) < TOLERANT[task]:
            continue
        before, after = entry["answer"].split(number[0], 1)
        wrong = f"{before}{float(number[0]) * 1.02!r}{after}"
        earned = min(items.verified(task, wrong, entry), max_score(task, wrong, entry))
        assert earned < solved_score(task), (level, wrong, entry["answer"])
        tried += 1
    assert tried > MANY
