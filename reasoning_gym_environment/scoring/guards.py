"""Guards: the most that an answer may earn, checked before the library's verifier runs.

A guard never takes anything from an answer that deserves full credit. Many verifiers pay if the
answer only contains the right one, even denied, for what the question already shows, or for what a
guess gets right by chance. The guards of numbers, expressions, logic and plans refuse what is not
finite, uses other numbers than the given ones, leaves the work to the verifier, or repeats the
question.

Functions that import the library run in worker processes, which have it loaded. `GUARDS` says which
task has which guard.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import operator
import re
import string
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .extraction import is_angle, is_same_number, strip_formatting


def longer_text(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse text beside the oracle that could be an answer: the library's default scoring pays."""
    return _longer(answer, entry["answer"])


def longer_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse as `longer_text` does, without thousands separators."""
    return _longer(answer.replace(",", ""), entry["answer"].replace(",", ""))


def longer_matrix(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse as `longer_text` does, with runs of spaces reduced to one."""
    rows = [" ".join(row.split()) for row in answer.strip().split("\n")]
    return _longer("\n".join(rows), entry["answer"].strip())


def longer_move(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse as `longer_text` does, in upper case."""
    return _longer(answer.strip().upper(), entry["answer"].strip())


def one_object(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse text around the one object: it lowers the score by half of its share only.

    Text that isn't one object is paid if it contains the right one. Similarity is an edit distance
    over the longer length as ASCII, so content that is long and cheap to leave out (empty keys,
    emoji) makes an object similar to any other.
    """
    right = entry["answer"].strip()
    answer = strip_formatting(answer.strip())
    begin = answer.find("{")
    end = answer.rfind("}")
    if begin < 0 or end < 0 or answer == right:
        return 1.0
    if _has_words(answer[:begin] + answer[end + 1 :]):
        return 0.0
    try:
        found = json.loads(answer[begin : end + 1])
        length = len(json.dumps(found))
    except (ValueError, RecursionError):
        return 0.0
    is_short = length <= 1.25 * len(right) + 8
    return 1.0 if is_short or found == json.loads(right) else 0.0


def longer_fraction(answer: str, entry: Mapping[str, Any]) -> float:
    r"""Refuse words after a `\frac{…}{…}`: the verifier ignores them."""
    fraction = re.compile(r"\\d?frac\s*{\s*\d+\s*}\s*{\s*\d+\s*}", re.IGNORECASE)
    match = fraction.match(answer.strip().strip("$").strip())
    return 0.0 if match and _has_words(match.string[match.end() :]) else 1.0


def first_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse a wrong sign: the verifier reads the first number of a text without its sign."""
    first = re.search(r"((?<![\w.)])[-\u2212])?\d", answer)
    is_negative = first is not None and first[1] is not None
    return 0.0 if is_negative and float(entry["answer"]) > 0 else 1.0


def _longer(answer: str, oracle: str) -> float:
    if not oracle or oracle not in answer:
        return 1.0
    if strip_formatting(answer) == oracle or is_same_number(answer, oracle):
        return 1.0
    before, _, after = answer.partition(oracle)
    joined = before[-1:].isalnum() or after[:1].isalnum() or before.endswith(("-", "\u2212"))
    return 0.0 if joined or _offers_more(before + " " + after, oracle) else 1.0


def _offers_more(rest: str, oracle: str) -> bool:
    """Return whether the text beside the oracle could be an answer, too."""
    if any(character.isdigit() for character in oracle):
        return any(character.isdigit() for character in rest)
    # Sets of possible answers, each with the word that negates them.
    for choices in (
        {"true", "false", "not"},
        {"yes", "no", "not"},
        {"on", "off", "undetermined", "not"},
        {"peng", "chi", "pass", "not"},
    ):
        if oracle.lower() in choices:
            return not choices.isdisjoint(re.findall(r"[^\W_]+", rest.lower()))
    return _has_words(rest) or any(character in oracle for character in "".join(rest.split()))


def is_denied(answer: str, oracle: str) -> bool:
    """Return whether an answer has a word or sign of denial that the right one lacks.

    Example:
        >>> is_denied("It is not 4", "4"), is_denied("4 (this is wrong)", "4")
        (True, True)
        >>> is_denied("No", "No"), is_denied("4, no more", "4"), is_denied("4? No.", "4")
        (False, False, True)
    """
    no = "no"
    if not any(map(str.isalpha, oracle)):  # `42 (no remainder)` tells more of the number
        no = r"no(?!\s+(?!answer|chance|good|longer|right|correct|solution|way)[^\W\d_])"
    denial = re.compile(  # `false` and `None` alone may be values
        rf"\b(?:not|{no}|never|neither|nor|none of|cannot|wrong\w*|incorrect\w*|is false|untrue"
        r"|invalid|impossible|mistaken?|except|unlike|anything but|(?:other|rather) than|instead of"
        r"|(?:is|are|was|do|does|did|ca|wo)nt)\b|n['\u2019]t\b|~~|\u2260|!=|\u00ac",
        re.IGNORECASE,
    )
    found, right = ({m[0].lower() for m in denial.finditer(text)} for text in (answer, oracle))
    return not found <= right


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def credit_above_chance(
    found: Sequence[Any],
    shown: Sequence[Any],
    right: Sequence[Any],
    *,
    chance: float = 0.0,
) -> float:
    """Return the share of unshown items that are right, above what guessing gets.

    Args:
        found: the items of the answer.
        shown: the items of the question in the same places.
        right: the items of the oracle in the same places.
        chance: the share that a guess gets.
    """
    if len(found) != len(right):
        return 0.0
    is_open: list[bool] = [a != b for a, b in zip(shown, right, strict=True)]
    if not any(is_open):
        return 1.0 if list(found) == list(right) else 0.0
    hits = [a == b for a, b, counts in zip(found, right, is_open, strict=True) if counts]
    share: float = sum(hits) / len(hits)
    return max(0.0, (share - chance) / (1 - chance))


def number_grid(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for open cells only, above chance: the verifier pays for those that the puzzle gives.

    A row with a repeated number counts for nothing: filling cells at random makes such rows.
    """
    puzzle = entry["metadata"]["puzzle"]
    solution = entry["metadata"]["solution"]
    size = len(solution)
    rows = [[int(c) for c in line if c in "123456789"] for line in answer.split("\n")]
    rows = [row for row in rows if len(row) == size][:size]
    blank = [0] * size
    rows = [row if len(set(row)) == size else blank for row in rows]
    rows += [blank] * (size - len(rows))
    found, shown, right = ([*itertools.chain(*grid)] for grid in (rows, puzzle, solution))
    return credit_above_chance(found, shown, right, chance=1 / size)


def living_cells(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for the share of living cells found: the verifier pays for dead ones, and most are."""
    try:
        found = json.loads(answer)
        right = json.loads(entry["answer"])
    except (ValueError, RecursionError):  # the verifier can't read it either
        return 1.0
    if not isinstance(found, list) or len(found) != len(right):
        return 0.0
    if any(not isinstance(a, list) or len(a) != len(b) for a, b in zip(found, right, strict=True)):
        return 0.0
    pairs = [pair for rows in zip(found, right, strict=True) for pair in zip(*rows, strict=True)]
    living = [(a, b) for a, b in pairs if a != 0 or b != 0]
    return sum(a == b for a, b in living) / len(living) if living else 1.0


def reversed_word(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for letters that move: the others are paid for, too, and what follows is ignored."""
    right = _bare(entry["answer"])
    return credit_above_chance(_bare(answer), right[::-1], right)


def read_letters(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for the share of right letters: ten of them earn full credit, and more are ignored."""
    found = _bare(answer.replace(" ", ""))
    right = _bare(entry["answer"])
    if len(found) > len(right):
        return 0.0
    return sum(a == b for a, b in zip(found, right, strict=False)) / len(right)


def _bare(word: str) -> str:
    return word.lower().strip(string.punctuation + string.whitespace)


def same_characters(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for agreement above that of one repeated character: a sixth of text is blanks."""
    right: str = entry["answer"]
    return credit_above_chance(answer, [None] * len(right), right, chance=0.2)


def unscrambled_words(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for scrambled words only: the others are paid for, too, and words that follow ignored."""
    shown = " ".join(entry["metadata"]["scrambled_words"])
    return _word_credit(answer, shown, entry["answer"])


def reordered_words(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for words that moved: those that stay are paid for, too, and one repeated word."""
    _, _, shown = entry["question"].partition(": ")
    right: str = entry["answer"]
    if sorted(answer.lower().split()) != sorted(right.lower().split()):
        return 0.0
    return _word_credit(answer, shown, right)


def _word_credit(answer: str, shown: str, right: str) -> float:
    return credit_above_chance(answer.lower().split(), shown.lower().split(), right.lower().split())


def sorted_words(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for words that moved: any order is paid for, and words that follow are ignored."""
    metadata = entry["metadata"]
    found = [word.strip() for word in re.split(r",\s*", answer)]
    return credit_above_chance(found, metadata["transformed_words"], metadata["sorted_words"])


if TYPE_CHECKING:
    from reasoning_gym.logic.propositional_logic import Expression


def _closeness(actual: float, expected: float) -> float:
    """Return 1 if equal, falling linearly to 0 at a relative error of 2 %."""
    if actual == expected:
        return 1.0
    error = abs(actual - expected)
    limit = 0.02 * abs(expected)
    return 1 - error / limit if error < limit else 0.0


def complex_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse letters other than those of complex numbers: `nan` passes every comparison."""
    letters = {character for character in answer.lower() if character.isalpha()}
    return 1.0 if letters <= set("eij") else 0.0


def given_numbers(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse numbers that the question doesn't give: each may be off by 1, and NaN by anything."""
    try:
        found = sorted(float(number) for number in json.loads(answer.replace("'", '"')))
    except (ValueError, TypeError, RecursionError, OverflowError):  # the verifier can't either
        return 1.0
    return 1.0 if found == sorted(map(float, entry["metadata"]["sorted_numbers"])) else 0.0


def decimal_digits(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse wrong digits: the verifier allows an error of 0.001, however many digits are shown.

    An answer may be rounded to fewer digits. The last ones of a label that has as many digits as
    the question allows depend on how each step is rounded.
    """
    try:
        value = Decimal(answer)
        right = Decimal(entry["answer"])
        most = re.findall(r"maximum of (\d+) significant digits", entry["question"])[0]
        is_rounded = len(right.as_tuple().digits) >= int(most)
        allowed = max(_half_a_unit(value), 20 * _half_a_unit(right) if is_rounded else Decimal(0))
        return 1.0 if abs(value - right) <= allowed else 0.0
    except (ArithmeticError, ValueError):  # not a number, or not finite
        return 0.0


def _half_a_unit(number: Decimal) -> Decimal:
    """Return half of the place value of the last digit; raise ValueError if it is not finite."""
    return Decimal("0.5").scaleb(int(number.as_tuple().exponent))


def exact_angle(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse angles off by more than their places: the verifier compares two of the three asked."""
    exact = entry["metadata"].get("angle_ABC_degrees")
    # As the verifier for another number.
    return 1.0 if exact is None or is_angle(answer, exact) else 0.05


def chosen_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse other candidates: the verifier allows an error of 0.01, and theirs are closer."""
    try:
        found, right = (float(text.replace(",", "")) for text in (answer, entry["answer"]))
    except ValueError:
        return 0.0
    return float(math.isclose(found, right, rel_tol=1e-14))  # as written with fifteen digits


def pooled_numbers(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse errors above 0.01: the question asks for two decimals, the verifier allows 1 %."""
    try:
        found, right = (
            [float(cell) for cell in text.split()] for text in (answer, entry["answer"])
        )
    except ValueError:
        return 0.0
    if len(found) != len(right):
        return 1.0
    errors = [abs(a - b) for a, b in zip(found, right, strict=True)]
    # One unit of the second decimal, as halves may be rounded up or down. The verifier pays 0.1 for
    # any matrix of the right shape.
    return 1.0 if max(errors, default=0.0) < 0.0101 else 0.1


def probability(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay by nearness: the verifier pays for a prefix common with the shorter text, such as `0.`.

    The form is checked before the value: `1e999999999` takes forever to compute.
    """
    plain = answer.replace(",", "")
    if not re.fullmatch(
        r"\s*\+?(\d{1,400}/\d{1,400}|(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][-+]?\d{1,3})?)\s*",
        plain,
        re.ASCII,
    ):
        return 0.0
    try:
        value = Fraction(plain)
    except ZeroDivisionError:
        return 0.0
    expected = Fraction(entry["answer"].replace(",", ""))
    if value and abs(value - expected) <= Fraction(1, 10_000):  # as the verifier
        return 1.0
    return _closeness(float(value), float(expected)) if value <= 1 else 0.0


def duration(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay by relative error: on the scale of the whole range any constant is near."""
    kind = entry["metadata"]["task_type"]
    try:
        actual = _seconds(answer, kind)
    except (ValueError, IndexError, OverflowError):  # no time: the verifier reads `12:00:00.-5`
        return 0.0
    return _closeness(actual, _seconds(entry["answer"], kind))


def _seconds(text: str, kind: str) -> float:
    """Read a duration as the verifier does (days instead of seconds for `date`)."""
    if kind == "date":
        return float(int(text.split()[0]))
    days = 0
    clock = text
    if not kind.startswith("time"):
        days = int(text.split(" days,")[0])
        clock = text.split(",")[1]
    hours, minutes, *rest = clock.strip().split(":")
    return days * 86_400 + int(hours) * 3600 + int(minutes) * 60 + float(rest[0] if rest else 0)


def real_solutions(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse words among the numbers: alone they pass for "no solution"."""
    if not entry["answer"] and re.search(r"\b(no|none)\b", answer, re.IGNORECASE):
        return 1.0
    parts = [part.strip() for part in answer.strip("[]()\"' ").split(",")]
    try:
        return 1.0 if all(math.isfinite(float(part)) for part in parts if part) else 0.0
    except ValueError:  # not a number
        return 0.0


def prime_factors(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse factors that aren't primes of the number: the number itself has the right product."""
    try:
        factors = {
            int(factor) for factor in answer.split("\N{MULTIPLICATION SIGN}") if factor.strip()
        }
    except ValueError:  # the verifier raises
        return 0.0
    return 1.0 if factors <= set(entry["metadata"]["factors"]) else 0.0


_NAME = re.compile(r"(?<!\w)[^\W\d]\w*")
_UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, ArithmeticError)


def antiderivative(answer: str, entry: Mapping[str, Any]) -> float:
    """Require a closed form: `Integral(f, x)` and `integrate(f, x)` have the derivative f, too."""
    function = re.compile(
        "exp|log|ln|sqrt|cbrt|root|Abs|abs|sign|Rational|pi"
        "|a?(sin|cos|tan|cot|sec|csc)h?|atan2"
        "|erf[ci]?|Ei|expint|[lL]i|[SC]h?i|(lower|upper)?gamma|fresnel[sc]|polylog"
    )
    # The constant of integration; N, O, Q and S are functions of sympy.
    constant = re.compile(r"(?![NOQS]$)[A-Za-z]_?\d*|[Cc]onst(ant)?")
    names = set(_NAME.findall(answer)) - {entry["metadata"]["variable"]}
    closed = all(function.fullmatch(name) or constant.fullmatch(name) for name in names)
    return 1.0 if closed and not _is_quoting(answer) else 0.0


def polynomial(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse names other than the variables: the parser evaluates `expand(…)` of the question."""
    named = set(_NAME.findall(answer)) <= set(map(str, entry["metadata"]["variables"]))
    return 1.0 if named and not _is_quoting(answer) else 0.0


def _is_quoting(answer: str) -> bool:
    return "'" in answer or '"' in answer


def made_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Require the given numbers, and pay little unless they make the target, or 24.

    The verifiers take other numbers, such as `0x…`, and what is near or rounds down to the target.
    """
    numbers: list[int] = []
    try:
        value = _value(ast.parse(" ".join(answer.split()), mode="eval").body, numbers)
    except _UNREADABLE:
        return 0.0
    metadata = entry["metadata"]
    if sorted(numbers) != sorted(metadata["numbers"]):
        return 0.0
    return 1.0 if value == metadata.get("target", 24) else 0.05


def _value(node: ast.AST, numbers: list[int]) -> Fraction:
    """Evaluate sums, differences, products and quotients of integers, and collect the integers.

    An integer may have a decimal point: a full stop after the expression gives it one. Raises
    ValueError for something else.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        value = Fraction(node.value)
        if value.denominator == 1:
            numbers.append(value.numerator)
            return value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        operand = _value(node.operand, numbers)
        return -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.BinOp):
        left = _value(node.left, numbers)
        right = _value(node.right, numbers)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
    raise ValueError(type(node).__name__)


def literal(answer: str, entry: Mapping[str, Any]) -> float:
    """Accept only literals: the answer is evaluated where the oracle is in reach."""
    if answer.strip() == entry["answer"].strip():
        return 1.0
    if answer in entry["metadata"].get("valid_answers", ()):
        return 1.0
    try:
        ast.literal_eval(answer.strip())
    except _UNREADABLE:
        return 0.0
    return 1.0


def conclusion(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse restated premises and tautologies: both follow without a step of reasoning.

    A statement restates premises if it has the truth table of one of them, or of some of them
    joined by "and", and isn't shorter: a shorter one is a simplification, which takes reasoning.
    Order, brackets, double negation and repetition make no difference. The entry's own example is
    right even if it is a premise.
    """
    from reasoning_gym.logic.propositional_logic import parse_expr

    metadata = entry["metadata"]
    if len(answer) > 1000:  # default conclusions have about 10 characters
        return 0.0
    names = metadata["variables"]
    always = (1 << (1 << len(names))) - 1  # the truth table of a tautology, as bits
    columns = {name: always // ((1 << (1 << i)) + 1) for i, name in enumerate(names)}
    try:
        statement = _meaning(parse_expr(strip_formatting(answer)), columns, always)
    except (ValueError, RecursionError, KeyError):  # no statement, or about something else
        return 0.0
    if statement.text == _normal_form(parse_expr(metadata["example_answer"])):
        return 1.0
    if statement.table == always:
        return 0.05  # as the verifier for a statement that does not follow
    premises = [_meaning(parse_expr(text), columns, always) for text in metadata["premises"]]
    return 0.0 if _restates(statement, premises) else 1.0


class _Statement(NamedTuple):
    """A statement in its normal form, and its truth table: one bit for each assignment."""

    text: str
    table: int

    @property
    def size(self) -> int:
        """The number of names and signs."""
        return len(self.text) - self.text.count("(") - self.text.count(")")


def _restates(statement: _Statement, premises: Sequence[_Statement]) -> bool:
    implied = [p for p in premises if not statement.table & ~p.table]
    if _all_of(implied) != statement.table:
        return False
    sizes = [p.size for p in implied if p.table == statement.table]
    for premise in sorted(implied, key=lambda p: p.size, reverse=True):
        others = [p for p in implied if p is not premise]
        if _all_of(others) == statement.table:
            implied = others
    sizes.append(sum(p.size for p in implied) + len(implied) - 1)
    return statement.size >= min(sizes)


def _all_of(statements: Sequence[_Statement]) -> int:
    return reduce(operator.and_, (one.table for one in statements), -1)


def _meaning(statement: Expression, columns: Mapping[str, int], always: int) -> _Statement:
    return _Statement(_normal_form(statement), _table(statement, columns, always))


def _table(statement: Expression, columns: Mapping[str, int], always: int) -> int:
    """Return a statement's truth table; raise KeyError for a name without a column."""
    sign = statement.operator  # an enumeration of texts
    if sign is None:
        return columns[statement.left]
    left = _table(statement.left, columns, always)
    if sign == "¬":
        return always ^ left
    right = _table(statement.right, columns, always)
    if sign == "∧":
        return left & right
    if sign == "→":
        return (always ^ left) | right
    return always ^ left ^ right if sign == "↔" else left | right


def _normal_form(statement: Expression) -> str:
    """Return one text for all statements that differ only in notation."""
    sign = statement.operator  # an enumeration of texts
    if sign is None:
        return str(statement.left)
    left = _normal_form(statement.left)
    if sign == "¬":
        return left[1:] if left.startswith("¬") else f"¬{left}"
    right = _normal_form(statement.right)
    if sign == "→":
        return f"({left}→{right})"
    if left == right and sign != "↔":
        return left
    return f"({min(left, right)}{sign.value}{max(left, right)})"


def roles(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for roles above chance: half are right by luck, both for half of the people always."""
    from reasoning_gym.logic.knights_knaves import KnightsKnavesDataset

    found = KnightsKnavesDataset._normalize_answer(answer)
    right = KnightsKnavesDataset._normalize_answer(entry["answer"])
    by_name = dict(found)
    if len(by_name) != len(found) or by_name.keys() != dict(right).keys():
        return 0.0
    names = sorted(by_name)
    expected = [dict(right)[name] for name in names]
    return credit_above_chance(
        [by_name[name] for name in names], [None] * len(names), expected, chance=0.5
    )


def possible_moves(answer: str, entry: Mapping[str, Any]) -> float:
    """Return the share of needed moves among needed and impossible ones.

    The verifier skips moves that can't be made, but the question asks to name an agent only if it
    has something to do. Needed moves are counted on the shortest paths: moving to and fro doesn't
    make up for impossible moves.
    """
    from reasoning_gym.games.boxnet import action_from_response

    start = state = entry["metadata"]["initial_state"]
    idle = 0
    try:
        for step in json.loads(answer):
            for agent, move in step.items():
                after = action_from_response(state, [{agent: move}])
                idle += after == state
                state = after
    except json.JSONDecodeError:  # the verifier can't read it either
        return 1.0
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        return 0.0  # the verifier raises
    needed = _moves_needed(start)
    return needed / (needed + idle)


def _moves_needed(state: Mapping[str, Sequence[str]]) -> int:
    """Count the moves that take each box to the nearest free target of its color."""
    held = [(tuple(map(float, at.split("_"))), what) for at, all_ in state.items() for what in all_]
    targets = [(at, what) for at, what in held if what.startswith("target_")]
    moves = 0
    for (row, column), box in held:
        if not box.startswith("box_"):
            continue
        ways = {
            (at, what): abs(at[0] - row) + abs(at[1] - column)
            for at, what in targets
            if what.removeprefix("target_") == box.removeprefix("box_")
        }
        nearest = min(ways, key=ways.__getitem__)
        targets.remove(nearest)
        moves += int(ways[nearest]) + 1
    return moves


def max_score(task: str, answer: str, entry: Mapping[str, Any]) -> float:
    """Return the most that an answer may earn, from 0.0 to 1.0.

    Runs in a verifier's child: well-formed but huge answers may take long. A denied answer earns
    nothing, except where words are the answer, which may be right as far as they go, or where the
    entry has none.

    Args:
        answer: the bare answer, without tags.
        entry: the library's entry, as generated.
    """
    oracle = entry["answer"]
    if answer == oracle:
        return 1.0
    words = (
        *("codeio", "emoji_mystery", "figlet_font", "game_of_life_halting"),
        *("letter_jumble", "spell_backward", "word_ladder"),
    )
    if oracle and task not in words and is_denied(answer, oracle):
        return 0.0
    guard = GUARDS.get(task)
    return 1.0 if guard is None else guard(answer, entry)


Guard = Callable[[str, Mapping[str, Any]], float]
"""Returns the most that an answer to an entry may earn. Its docstring says why it is needed."""

_TASKS: Mapping[Guard, str] = {
    # Without a verifier of their own.
    longer_text: """
        acre aiw arc_1d base_conversion basic_arithmetic bf binary_alternation caesar_cipher
        count_bits count_primes course_schedule gcd isomorphic_strings largest_island lcm
        leg_counting letter_counting list_functions mahjong_puzzle maze modulo_grid
        number_filtering number_sequence ransom_note rotate_matrix rotten_oranges
        simple_equations simple_geometry string_manipulation string_splitting string_synthesis
        syllogism word_sequence_reversal
    """,
    longer_number: "chain_sum products",
    longer_matrix: "manipulate_matrix",
    longer_move: "tsumego",
    one_object: "codeio",
    longer_fraction: "fraction_simplification",
    first_number: "gsm_symbolic",
    complex_number: "complex_arithmetic",
    given_numbers: "number_sorting",
    decimal_digits: "decimal_arithmetic",
    exact_angle: "advanced_geometry",
    chosen_number: "number_format",
    pooled_numbers: "pool_matrix",
    probability: "coin_flip",
    duration: "time_intervals",
    real_solutions: "polynomial_equations",
    prime_factors: "prime_factorization",
    antiderivative: "simple_integration intermediate_integration",
    polynomial: "polynomial_multiplication",
    made_number: "countdown puzzle24",
    literal: "binary_matrix n_queens spiral_matrix string_insertion",
    number_grid: "mini_sudoku sudoku futoshiki",
    living_cells: "game_of_life",
    reversed_word: "spell_backward",
    read_letters: "figlet_font",
    same_characters: "emoji_mystery",
    unscrambled_words: "letter_jumble",
    reordered_words: "sentence_reordering",
    sorted_words: "word_sorting",
    conclusion: "propositional_logic",
    possible_moves: "boxnet",
    roles: "knights_knaves",
}

GUARDS: Mapping[str, Guard] = MappingProxyType(
    {task: guard for guard, tasks in _TASKS.items() for task in tasks.split()}
)
