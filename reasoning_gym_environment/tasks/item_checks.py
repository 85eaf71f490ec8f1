"""Checks of single items: labels that are false, and questions with no or several right answers.

Each check takes well under a millisecond and runs beside the generator. The solvers of
`research/labels` prove that no faulty item passes; neither uses the other's code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from ..records import Fault, FaultKind

Entry = Mapping[str, Any]
"""An entry of the library: question, answer and metadata."""


_false_label = partial(Fault, FaultKind.FALSE_LABEL)
_ambiguous = partial(Fault, FaultKind.AMBIGUOUS)
_unanswerable = partial(Fault, FaultKind.UNANSWERABLE)


def _ab(entry: Entry) -> Fault | None:
    return None if entry["answer"] else _unanswerable("the right answer is an empty text")


def _aiw(entry: Entry) -> Fault | None:
    """Find siblings of a person never introduced, and the colleagues of the second circle."""
    question = entry["question"]
    sibling = re.search(r"^(\w+) has .* does (\w+)'s brother have", question)
    if sibling:
        if sibling[1] != sibling[2]:
            return _unanswerable(f"{sibling[2]} is not introduced")
        return None
    first, *second = map(int, re.findall(r"(\d+) female", question))
    if second and entry["answer"] != str(first + second[0] - 1):
        return _false_label(f"right: {first} - 1 + {second[0]} - 1 + 1")
    return None


def _arc(entry: Entry) -> Fault | None:
    """Find a label that changes its grid where no example does."""
    *examples, asked = entry["question"].split("Input:")[1:]
    for example in examples:
        before, after = re.split("Output:|Example|Below", example)[:2]
        if before.strip() != after.strip():
            return None
    if asked.strip() == entry["answer"].strip():
        return None
    return _unanswerable("no example shows the rule: all leave their grid as it is")


def _exact(expression: str) -> Fraction:
    """Return the value of an expression of numbers, signs and parentheses."""
    tokens = re.findall(r"[\d.]+|[-+*/()]", expression)[::-1]
    priorities = {"+": 1, "-": 1, "*": 2, "/": 2}

    def value_of(priority: int) -> Fraction:
        token = tokens.pop()
        if token == "-":
            value = -value_of(3)
        elif token == "(":
            value = value_of(0)
            tokens.pop()
        else:
            value = Fraction(token)
        while tokens and priorities.get(tokens[-1], 0) > priority:
            sign = tokens.pop()
            other = value_of(priorities[sign])
            if sign in "+-":
                value += other if sign == "+" else -other
            else:
                value *= other if sign == "*" else 1 / other
        return value

    return value_of(0)


def _basic_arithmetic(entry: Entry) -> Fault | None:
    """Find quotients that the library cut to integers."""
    value = _exact(entry["metadata"]["expression"])
    return None if value == int(entry["answer"]) else _false_label(f"the value is {value}")


def _caesar_cipher(entry: Entry) -> Fault | None:
    text = entry["answer"]
    if not text.isascii():
        return _false_label("a letter outside A to Z is lost in the cipher")
    # No other shift turns these two words of three letters into a word.
    if len(text.replace(" ", "")) > 3 or text in ("MRS", "YES"):
        return None
    return _ambiguous(f"{len(text)} letters don't tell the shift")


def _two_orders() -> Fault:
    return _ambiguous("the month and the day may stand in either order")


def _day_first(day: datetime) -> datetime:
    """Return a date with its month and day exchanged; the same date if there is none."""
    return day.replace(month=day.day, day=day.month) if day.day < 13 else day


def _calendar_arithmetic(entry: Entry) -> Fault | None:
    """Find end dates in another year than the one named, and dates with two readings."""
    metadata = entry["metadata"]
    if metadata["task"] == "count_business_days":
        if metadata["start_date"][:4] == metadata["end_date"][:4]:
            return None
        return _unanswerable(
            f"the question names {metadata['end_date']} with the year of the start"
        )
    if metadata["task"] == "weekday_of_date_from_first_date":
        if int(metadata["target_date"][5:7]) < 3:
            return None
        return _ambiguous("the year may be a leap year")
    if metadata["task"] == "weekday_of_date" and "/" in entry["question"]:
        day = datetime.fromisoformat(metadata["target_date"])
        if _day_first(day).weekday() != day.weekday():
            return _two_orders()
    return None


def _circuit_logic(entry: Entry) -> Fault | None:
    """Find the final gate that is not drawn, and exclusive ors with two readings that differ.

    The label takes XOR of three and more inputs as odd parity. It is also read as exactly one.
    """
    metadata = entry["metadata"]
    terms = metadata["term_strings"]
    final = metadata["final_gate"]
    if len(terms) == 1 and final == "NOR":
        return _false_label("the final gate, which changes the output, is not drawn")
    gates: Mapping[str, Callable[[Sequence[bool]], bool]] = {
        "&": all,
        "↑": lambda inputs: not all(inputs),
        "⊕": lambda inputs: sum(inputs) == 1,
        "AND": all,
        "OR": any,
        "NOR": lambda inputs: not any(inputs),
        "XOR": lambda inputs: sum(inputs) == 1,
    }
    outputs = []
    for term in terms:
        symbol = next((symbol for symbol in "&↑⊕" if symbol in term), None)
        if symbol is None:
            return None  # with one input, the term does not name its gate
        outputs.append(
            gates[symbol](
                [
                    metadata["assignments"][name.rstrip("'")] != name.endswith("'")
                    for name in term.split(symbol)
                ]
            )
        )
    if gates[final](outputs) == (entry["answer"] == "1"):
        return None
    return _ambiguous("XOR may ask for an odd number of inputs or for exactly one")


def _codeio(entry: Entry) -> Fault | None:
    """Find programs that failed or whose runs differ, and questions for an input."""
    question, _, code = entry["question"].rpartition("not copy spans of code directly.\n")
    if entry["answer"] == "{}" and entry["metadata"]["input_data"] == {}:
        return _false_label("the program failed")
    if f"{crc32(code.strip().encode()):08x}" in _unpredictable_programs():
        return _unanswerable("the program's runs differ")
    if "Can you predict a feasible input" in question:
        return _ambiguous("other inputs may give the output, and one is paid")
    return None


@cache
def _unpredictable_programs() -> frozenset[str]:
    """Return the CRC-32 of each program that `research/codeio_programs.py` found."""
    path = Path(__file__).with_name("unpredictable_programs.json")
    return frozenset(json.loads(path.read_text(encoding="utf-8")))


def _complex_arithmetic(entry: Entry) -> Fault | None:
    """Find products of more digits than a float has."""
    number = r"\((\S+) ([-+]) (\S+)i\)"
    found = re.search(f": {number} \u00d7 {number}$", entry["question"])
    if not found:
        return None
    a = int(float(found[1]))
    b = int(float(found[2] + found[3]))
    c = int(float(found[4]))
    d = int(float(found[5] + found[6]))
    real = a * c - b * d
    imaginary = a * d + b * c
    if abs(real) < 2**53 and abs(imaginary) < 2**53:
        return None
    label = complex(entry["answer"].replace(" ", "").replace("i", "j"))
    if (int(label.real), int(label.imag)) == (real, imaginary):
        return None
    return _false_label(f"right: {real} + {imaginary}i, unrounded")


def _decimal_arithmetic(entry: Entry) -> Fault | None:
    """Find results that the library rounded before the end."""
    header, expression = entry["question"].split("\n")
    value = _exact(expression.removesuffix("= ?"))
    digits = re.findall(r"(\d+) significant", header)[0]
    with localcontext(Context(prec=100)):
        quotient = Decimal(value.numerator) / value.denominator
    rounded = Context(prec=int(digits), rounding=ROUND_HALF_UP).plus(quotient)
    if rounded == Decimal(entry["answer"]):
        return None
    return _false_label(f"to {digits} digits the value is {rounded}")


def _emoji_mystery(entry: Entry) -> Fault | None:
    if "\ufe0f" not in entry["metadata"]["emoji"]:
        return None
    return _ambiguous("the hint's code decodes the emoji's own selector as a control character")


def _family_relationships(entry: Entry) -> Fault | None:
    """Find words for the other person, and names that men and women have."""
    story, _, asked = entry["question"].rstrip().rpartition("\n")
    word = entry["answer"]
    names = r"[A-Z]\w+"
    person, other = re.findall(rf"\b{names}", asked)[1:3]
    couples = re.findall(r"(\w+) is married to (\w+)\.", story)
    if word.endswith("-in-law"):
        spouses = {one for pair in couples if other in pair for one in pair} - {other}
        families = re.findall(
            r"(\w+) is married to (\w+)\. They have (?:a child|children) called ([^.]*)\.", story
        )
        if not any(
            person in parents and spouses & set(re.findall(names, children))
            for *parents, children in families
        ):
            return _false_label("the word for the other person")
    couple = next((pair for pair in couples if person in pair), [person])
    if {"Phoenix", "Rain", "River", "Sage", "Sky", "Winter"}.issuperset(couple):
        return _ambiguous(f"{person} is a man's and a woman's name")
    if word in ("niece", "nephew"):
        is_niece = bool(
            re.fullmatch(
                "A(bigail|lice|melia|nna|ria|urora|va)|Barbara|C(harlotte|hloe)"
                "|E(leanor|lizabeth|mily|mma)|Grace|Hannah|Isabella|Je(nnifer|ssica)|Karen"
                "|L(ily|inda|isa|ucy|una)|M(argaret|ary|ia)|Nova|Olivia|Patricia"
                "|S(arah|ophia|ophie|usan)|Victoria|Willow|Zoe",
                person,
            )
        )
        if len(couple) == 2:
            is_niece = person == couple[1]
        if is_niece != (word == "niece"):
            return _false_label("the word for a person of other sex")
    return None


def _figlet_font(entry: Entry) -> Fault | None:
    font = entry["metadata"]["font"]
    if font == "b_m__200":
        return _unanswerable("the font b_m__200 draws other signs than letters")
    look_alike = {
        "runic": ["QXZ", "UV"],
        "smisome1": ["DO"],
        "stencil2": ["CI"],
        "test1": ["CE"],
    }
    for letters in look_alike.get(font, ()):
        found = sorted(set(entry["answer"]) & set(letters))
        if found:
            return _ambiguous(f"{found[0]} is one of {letters} in the font {font}")
    return None


def _gsm_symbolic(entry: Entry) -> Fault | None:
    """Find answers that were cut to integers, and an age below zero."""
    if entry["answer"].startswith("-"):
        return _unanswerable("the answer is below zero")
    # The numbers that the library cuts to integers on the way, and the answers.
    formulas: Mapping[str, Callable[..., Fraction]] = {
        r"(\d+) tubes .* and (\d+) tubes .* half .* three times as": lambda a, b: a / 2 + 3 * b,
        r"class of (\d+) students, (\d+)% .* remaining class, (\d+)% of": (
            lambda all_, first, second: all_ * (first + (100 - first) * second / 100) / 100
        ),
        r"for (\d+) cents and .* for (\d+) cents.* spent \D(\d+) and got (\d+) .* had (\d+)% of": (
            lambda first, second, money, count, left: (
                (money * (100 - left) - count * first) / second
            )
        ),
        r"includes (\d+) .* on the beach and (\d+) .* twice the rate .* If (\d+) minutes": (
            lambda beach, sidewalk, minutes: minutes + sidewalk * minutes / (2 * beach)
        ),
        r"has (\d+) jars .* can decorate (\d+) .* holds (\d+)": lambda a, b, held: a * b / held,
        r"a pen pal with (\d+) .* with (\d+) .* send (\d+) .* are (\d+) pages .* every (\d+) m": (
            lambda pals, lost, each, pages, minutes: (pals - lost) * each * pages * minutes / 60
        ),
        r"there are (\d+) \w+ cards, and (\d+)% more .* cards\. \w+ cards are as many as": (
            lambda first, more: 2 * first * (2 + more / 100)
        ),
        r"has \D([\d.]+) and wants to buy (\d+) .* from a bin .* costs \D([\d.]+\d)": (
            lambda money, count, price: money - count * price
        ),
    }
    if "How much more likely" in entry["question"]:
        return _ambiguous("percentage points, or percent of the smaller probability")
    for pattern, formula in formulas.items():
        found = re.search(pattern, entry["question"])
        if found:
            value = formula(*(Fraction(number) for number in found.groups()))
            if value != Fraction(entry["answer"]):
                return _false_label(f"the value is {value}")
    return None


_Knights = tuple[frozenset[str], frozenset[str]]
"""Where the knights stand of the side to move, and those of the other side."""


def _knight_swap(entry: Entry) -> Fault | None:
    """Search for a swap where the answer says that there is none."""
    if entry["answer"] != "No":
        return None
    pieces = entry["metadata"]["pieces"]
    first = entry["metadata"]["start_turn"]
    near = {
        at: [
            to
            for x, y in product((-2, -1, 1, 2), repeat=2)
            if abs(x) != abs(y) and (to := f"{chr(ord(at[0]) + x)}{int(at[1:]) + y}") in pieces
        ]
        for at in pieces
    }
    start = (
        frozenset(at for at, piece in pieces.items() if piece == first),
        frozenset(at for at, piece in pieces.items() if piece not in (first, None)),
    )
    moves = _moves_to_swap(start, near)
    return None if moves is None else _false_label(f"{moves} moves swap the knights on this board")


def _moves_to_swap(start: _Knights, near: Mapping[str, Sequence[str]]) -> int | None:
    """Return the fewest moves that swap the knights; None if none do."""
    turned = start[::-1]
    seen: tuple[set[_Knights], set[_Knights]] = set(), set()
    reached = {start}
    count = 0
    while reached:
        if (start if count % 2 else turned) in reached:
            return count
        seen[count % 2].update(reached)
        count += 1
        reached = {
            (waiting, moving - {at} | {to})
            for moving, waiting in reached
            for at in moving
            for to in near[at]
            if to not in moving and to not in waiting
        } - seen[count % 2]
    return None


def _letter_counting(entry: Entry) -> Fault | None:
    letter = entry["metadata"]["target_letter"]
    span = entry["metadata"]["span"]
    capitals = sum(word.count(letter.upper()) for word in span)
    if not capitals or not letter.isalpha():
        return None
    return _ambiguous(f"{letter} also stands there as a capital")


def _letter_jumble(entry: Entry) -> Fault | None:
    """Find words with two solutions in a text that has lost its short words, so its context."""
    shortest, _ = entry["metadata"]["difficulty"]["word_len"]
    if shortest < 2:
        return None
    common = (
        "act cat|agree eager|aside ideas|asleep please|begin being|below elbow|care "
        "race|continued unnoticed|course source|credit direct|dear read|den end|early "
        "layer|earnest eastern|earth heart|evil live|except expect|felt left|file life|form "
        "from|general enlarge|hate heat|horses shores|how who|impression permission|item "
        "time|items times|its sit|last salt|least steal|license silence|listen silent|mean "
        "name|means names|miles smile|net ten|night thing|nights things|no on|note tone|now "
        "own won|optics topics|part trap|quiet quite|raw war|saw was|shut thus|sorted "
        "stored|state taste|sure user|there three|tired tried"
    )
    groups = [group.split() for group in common.split("|")]
    for word in entry["answer"].split():
        lower = word.lower()
        others = [other for group in groups if lower in group for other in group if other != lower]
        fitting = [other for other in others if word.islower() or other[0] == word[0].lower()]
        if fitting:
            return _ambiguous(f"{word} could also be {fitting[0]}")
    return None


def _list_functions(entry: Entry) -> Fault | None:
    """Find counts where each example may also say whether there is any."""
    outputs = set(re.findall(r"Output \d: (.*)", entry["question"]))
    if outputs <= {"[0]", "[1]"} and entry["answer"] not in ("[0]", "[1]"):
        return _ambiguous("each example fits a count, and whether there is any")
    return None


def _mahjong_puzzle(entry: Entry) -> Fault | None:
    """Judge the last card that is added by the hand that it is added to."""
    last = entry["metadata"]["rounds"][-1]
    hand = last["cards"].replace(last["add"], "", 1) + last["remove"]
    below, low, high, above = (chr(ord(last["add"]) + i) in hand for i in (-2, -1, 1, 2))
    if hand.count(last["add"]) >= 2:
        right = "Peng"
    elif (below and low) or (low and high) or (high and above):
        right = "Chi"
    else:
        right = "Pass"
    return None if entry["answer"] == right else _false_label(f"the last card makes {right}")


Matrix = Sequence[Sequence[int]]


def _operated(
    matrix: Matrix,
    operation: Mapping[str, Any],
    *,
    turn: int,
    swap: bool,
) -> Matrix:
    """Return a matrix after an operation; `turn` and `swap` are as for `_after`."""
    match operation["transform"], operation.get("n", 0):
        case "rotate", _:
            for _ in range(turn * int(operation["degrees"]) // 90 % 4):
                matrix = list(zip(*matrix[::-1], strict=True))
        case ("hmirror" | "vmirror") as axis, _:
            rows = (axis == "hmirror") != swap
            matrix = matrix[::-1] if rows else [row[::-1] for row in matrix]
        case "dmirror", _:
            matrix = list(zip(*matrix, strict=True))
        case "cmirror", _:
            matrix = list(zip(*(row[::-1] for row in matrix[::-1]), strict=True))
        case "map", _:
            old = operation["from"]
            new = operation["to"]
            matrix = [[new if x == old else x for x in row] for row in matrix]
        case "zero_divisible", _:
            matrix = [[x if x % operation["k"] else 0 for x in row] for row in matrix]
        case "crop", _:
            columns = slice(operation["col_start"] - 1, operation["col_end"])
            rows_kept = matrix[operation["row_start"] - 1 : operation["row_end"]]
            matrix = [row[columns] for row in rows_kept]
        case "remove_every_nth_row", n:
            matrix = [row for i, row in enumerate(matrix, 1) if i % n]
        case "remove_every_nth_col", n:
            matrix = [[x for i, x in enumerate(row, 1) if i % n] for row in matrix]
    return matrix


def _after(metadata: Mapping[str, Any], *, turn: int, swap: bool) -> list[list[int]]:
    """Return a matrix after its operations: a turn of 1 is clockwise, of -1 counterclockwise.

    With `swap`, mirroring horizontally exchanges left and right instead of top and bottom.
    """
    matrix: Matrix = metadata["matrix"]
    for operation in metadata["operations"]:
        matrix = _operated(matrix, operation, turn=turn, swap=swap)
    return [list(row) for row in matrix]


def _manipulate_matrix(entry: Entry) -> Fault | None:
    """Find mirrors without an axis and rotations without a direction."""
    usual = _after(entry["metadata"], turn=1, swap=True)
    if _after(entry["metadata"], turn=1, swap=False) != usual:
        unclear = "what mirroring horizontally exchanges"
    elif _after(entry["metadata"], turn=-1, swap=True) != usual:
        unclear = "in which direction to rotate"
    else:
        return None
    return _ambiguous(f"the text does not say {unclear}")


def _modulo_grid(entry: Entry) -> Fault | None:
    """Search for another pattern that has the known cells and fills the blanks otherwise."""
    asked = re.findall(r"^[✅❌❔]+$", entry["question"], re.MULTILINE)
    answer = entry["answer"].split("\n")
    cells: dict[str, list[tuple[int, int]]] = {"✅": [], "❌": [], "❔": []}
    for row, marks in enumerate(asked):
        for column, mark in enumerate(marks):
            cells[mark].append((row, column))
    marked, unmarked, blanks = cells.values()
    if not marked:
        return _ambiguous("no cell of the pattern is known")
    label = [answer[row][column] == "✅" for row, column in blanks]
    largest = max(len(asked), len(asked[0])) + 30
    operations: tuple[Callable[[int, int, int], int], ...] = (
        lambda row, column, divisor: (row + column) % divisor,
        lambda row, column, divisor: abs(row - column) % divisor,
        lambda row, column, divisor: row * column % divisor,
        pow,
        lambda row, column, divisor: pow(column, row, divisor),
    )

    # A pattern marks the cells whose numbers, counted from `start`, leave one remainder.
    def is_marked(
        operation: Callable[[int, int, int], int],
        divisor: int,
        start: int,
        remainder: int,
        cell: tuple[int, int],
    ) -> bool:
        return operation(cell[0] + start, cell[1] + start, divisor) == remainder

    row, column = marked[0]
    for operation, divisor, start in product(operations, range(1, largest), (0, 1)):
        remainder = operation(row + start, column + start, divisor)
        rule = partial(is_marked, operation, divisor, start, remainder)
        if (
            all(map(rule, marked))
            and not any(map(rule, unmarked))
            and list(map(rule, blanks)) != label
        ):
            return _ambiguous(f"another pattern fits, modulo {divisor}")
    return None


def _needle_haystack(entry: Entry) -> Fault | None:
    """Find questions that two persons answer."""
    text, _, question = entry["question"].rpartition("\n")
    asked = question.removeprefix("Who ").removesuffix("? Reply only with a name.")
    return None if text.count(f" {asked}.") < 2 else _ambiguous(f"several persons: {asked}")


def _number_filtering(entry: Entry) -> Fault | None:
    """Find a number in the label that is not in the list, which has it in another form."""
    given, asked = (re.findall("'([^']*)'", entry[key]) for key in ("answer", "question"))
    added = Counter(given) - Counter(asked)
    if not added:
        return None
    return _false_label(
        f"{next(iter(added))} stands for an equal number of the list in another form"
    )


def _pool_matrix(entry: Entry) -> Fault | None:
    """Find regions that the edge cuts off, which many implementations drop."""
    metadata = entry["metadata"]
    rows = metadata["rows"]
    columns = metadata["cols"]
    size = metadata["pool_size"]
    if (rows % size == 0 and columns % size == 0) or size > min(rows, columns):
        return None
    return _ambiguous("the text does not say what happens to regions that the edge cuts off")


def _polynomial_equations(entry: Entry) -> Fault | None:
    """Find roots that the label lacks: the polynomial changes its sign more often than it says."""
    coefficients: Counter[int] = Counter()
    polynomial = entry["metadata"]["polynomial_expr"].replace(" ", "")
    term = r"([+-]?)(\d*)(?:\*?([a-z])(?:\*\*(\d+))?)?"
    for sign, number, variable, power in re.findall(term, polynomial):
        if number or variable:
            degree = int(power or 1) if variable else 0
            coefficients[degree] += int(f"{sign}{number or 1}")
    highest = max((degree for degree, c in coefficients.items() if c), default=0)
    if not highest:
        return None
    bound = 1 + max(abs(c / coefficients[highest]) for c in coefficients.values())
    xs = [bound * (step / 200 - 1) for step in range(401)]
    values = [sum(c * x**degree for degree, c in coefficients.items()) for x in xs]
    positive = [value > 0 for value in values if value]
    changes = sum(one != other for one, other in pairwise(positive))
    known = entry["metadata"]["real_solutions"]
    if changes <= len(set(known)):
        return None
    return _false_label(f"{changes} real solutions, not {len(known)}")


def _power_function(entry: Entry) -> Fault | None:
    """Find even powers of a negative number, which the question writes without brackets."""
    if entry["metadata"]["base"] > 0 or entry["metadata"]["exponent"] % 2:
        return None
    return _ambiguous("the minus sign may belong to the power")


def _table(tokens: Iterator[str], variables: Mapping[str, int], full: int) -> int:
    """Return the truth table of a formula in full parentheses, one bit a row."""
    token = next(tokens)
    if token == "¬":
        return full ^ _table(tokens, variables, full)
    if token != "(":
        return variables[token]
    left = _table(tokens, variables, full)
    connective = next(tokens)
    right = _table(tokens, variables, full)
    next(tokens)
    if connective == "→":
        return full ^ left | right
    if connective == "↔":
        return full ^ left ^ right
    return left & right if connective == "∧" else left | right


def _propositional_logic(entry: Entry) -> Fault | None:
    """Find premises that contradict one another, or that are all tautologies."""
    premises = entry["metadata"]["premises"]
    names = sorted(set(re.findall("[A-Z]", "".join(premises))))
    size = 2 ** len(names)
    full = 2**size - 1
    variables = {
        name: full // (2 ** (2 ** (place + 1)) - 1) * (2 ** (2**place) - 1)
        for place, name in enumerate(names)
    }
    given = full
    for premise in premises:
        given &= _table(iter(premise.replace(" ", "")), variables, full)
    if not given:
        return _ambiguous("the premises contradict one another")
    if given == full:
        return _unanswerable("only tautologies follow")
    return None


def _quantum_lock(entry: Entry) -> Fault | None:
    """Find a shorter way with presses that toggle the light and leave the number."""
    metadata = entry["metadata"]
    target = metadata["target_value"]
    limit = 50 * target + 500
    layer = {(metadata["initial_value"], metadata["initial_state"] == "red")}
    seen = set(layer)
    for _ in range(len(metadata["solution_path"]) - 1):
        following = set()
        for number, red in layer:
            for button in metadata["buttons"]:
                result = number
                value = button["value"]
                if button["active_state"] in ("any", "red" if red else "green"):
                    if button["type"] == "multiply":
                        result *= value
                    else:
                        result += value if button["type"] == "add" else -value
                if result == target:
                    return _ambiguous("shorter with a press in the wrong light")
                if abs(result) < limit:
                    following.add((result, not red))
        layer = following - seen
        seen |= layer
    return None


def _sentence_reordering(entry: Entry) -> Fault | None:
    """Find repeated words, which the library puts in a row, and parts of sentences.

    The library ends a sentence at each full stop, also at that of a title, and leaves the closing
    quotation mark to the next one.
    """
    words = entry["answer"].split()
    if len(set(words)) < len(words):
        repeated = next(word for word in words if words.count(word) > 1)
        return _false_label(f"{repeated!r} occurs several times, all in a row")
    if re.search(r"(?:^|\W)(?:Mrs?|Dr|www)\.$|(?:^| )[\"'](?: |$)", entry["answer"]):
        return _ambiguous("the words are not those of one sentence")
    return None


def _simple_equations(entry: Entry) -> Fault | None:
    metadata = entry["metadata"]
    if metadata["variable"] in metadata["equation"]:
        return None
    return _unanswerable(f"every {metadata['variable']} satisfies {metadata['equation']}")


def _simple_geometry(entry: Entry) -> Fault | None:
    if float(entry["answer"]) < 180:
        return None
    return _unanswerable(f"no convex polygon has an angle of {entry['answer']} degrees")


_EDITS = {
    ("start", "aa"): ("a", ""),
    ("start", "ab"): ("ca", ""),
    ("start", "ac"): ("zz", ""),
    ("start", "bb"): ("b", ""),
    ("start", "bc"): ("", "aa"),
    ("start", "ca"): ("bb", "c"),
    ("start", "cb"): ("aa", ""),
    ("start", "cc"): ("", ""),
    ("end", "aa"): ("cc", ""),
    ("end", "ac"): ("cb", ""),
    ("end", "ba"): ("ab", ""),
    ("end", "bb"): ("", ""),
    ("end", "ca"): ("c", ""),
    ("end", "cc"): ("b", "a"),
    ("inside", "abc"): ("cab", ""),
    ("inside", "acb"): ("bca", ""),
    ("inside", "bca"): ("", ""),
    ("inside", "ca"): ("", ""),
}
"""Rules of string_manipulation: what replaces a part, and what is added at the other end."""


def _string_manipulation(entry: Entry) -> Fault | None:
    """Compare with the other middle of an even length, where the library takes the right one."""
    rules = [rule for rule in entry["question"].splitlines() if ". If the string" in rule]
    if not entry["answer"]:
        return _ab(entry)
    if not any("length is greater than 15" in rule for rule in rules):
        return None
    form = r"\d+\. If the string (prefix is|starts with|suffix is|ends with|contains) '([abc]+)'"
    edits = [re.match(form, rule) or rule for rule in rules]
    text = entry["metadata"]["string"]
    states = set[str]()
    while len(states) < 2000:
        states.add(text)
        following = next((new for edit in edits if (new := _edited(edit, text)) is not None), text)
        if following in states:
            break
        text = following
    if text == entry["answer"]:
        return None
    return _ambiguous("an even number of characters has two middles")


def _edited(edit: re.Match[str] | str, text: str) -> str | None:
    """Return a text after one rule, None if the rule does not apply."""
    if isinstance(edit, str):
        if "length is greater than 15" in edit:
            middle = (len(text) - 1) // 2
            return text[:middle] + text[middle + 1 :] if len(text) > 15 else None
        count = text.count("b")
        return None if count % 2 or not count else text + "ab"
    place, part = edit.groups()
    if place in ("prefix is", "starts with"):
        if not text.startswith(part):
            return None
        new, added = _EDITS["start", part]
        edited = new + text[len(part) :] + added
        return edited[:-1] if part == "cb" else edited
    if place in ("suffix is", "ends with"):
        new, added = _EDITS["end", part]
        return added + text[: -len(part)] + new if text.endswith(part) else None
    new, _ = _EDITS["inside", part]
    at = text.find(part, part == "ca")
    return None if at < 0 else text[:at] + new + text[at + len(part) :]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Survo:
    """A puzzle that is being filled; a blank is its row and, counted after the rows, its column.

    Attributes:
        stock: how often each number is left.
        missing: what each row and column lacks to its sum.
        count: the blanks of each row and column.
    """

    blanks: set[tuple[int, int]]
    stock: Counter[int]
    missing: list[int]
    count: list[int]

    def put(self, blank: tuple[int, int], number: int, times: int = 1) -> None:
        """Fill a blank, or empty it again where `times` is -1."""
        self.stock[number] -= times
        for line in blank:
            self.missing[line] -= times * number
            self.count[line] -= times
        (self.blanks.discard if times == 1 else self.blanks.add)(blank)

    def allows(self, blank: tuple[int, int], number: int) -> bool:
        """Return whether a number is left and no row or column exceeds its sum or falls short."""
        return self.stock[number] > 0 and all(
            number == self.missing[line] if self.count[line] == 1 else number < self.missing[line]
            for line in blank
        )


def _survo(entry: Entry) -> Fault | None:
    """Search for a second matrix that satisfies the sums; the verifier takes the first alone."""
    puzzle = entry["metadata"]["puzzle"]
    solution = entry["metadata"]["solution"]
    size = len(puzzle) - 1
    lines = [*puzzle[:size], *[[row[c] for row in puzzle] for c in range(size)]]
    known = {
        (r, size + c): solution[r][c] for r in range(size) for c in range(size) if not puzzle[r][c]
    }
    board = _Survo(
        blanks=set(known),
        stock=Counter(known.values()),
        missing=[line[-1] - sum(line[:-1]) for line in lines],
        count=[line[:-1].count(0) for line in lines],
    )
    if _count_matrices(board, known) < 2:
        return None
    return _ambiguous("several matrices satisfy the sums")


def _count_matrices(board: _Survo, known: Mapping[tuple[int, int], int]) -> int:
    """Count the ways to fill the blanks up to two, beginning with the known one."""
    if not board.blanks:
        return 1
    blank = min(board.blanks, key=lambda at: sorted(board.count[line] for line in at))
    found = 0
    for number in sorted(board.stock, key=lambda each: each != known[blank]):
        if found < 2 and board.allows(blank, number):
            board.put(blank, number)
            found += _count_matrices(board, known)
            board.put(blank, number, -1)
    return found


class _Categorical(NamedTuple):
    """A statement of a syllogism, such as `Some cats are not dogs`."""

    quantifier: str
    subject: str
    negated: str
    predicate: str

    @property
    def negative(self) -> bool:
        return self.quantifier == "No" or bool(self.negated)

    @property
    def particular(self) -> bool:
        return self.quantifier == "Some"

    @property
    def distributed(self) -> set[str]:
        """The terms of which the statement speaks as a whole."""
        subject = set() if self.particular else {self.subject}
        return subject | ({self.predicate} if self.negative else set())

    @property
    def inhabited(self) -> set[str]:
        """The terms that have members if the statement is true, without existential import."""
        if not self.particular:
            return set()
        return {self.subject} if self.negative else {self.subject, self.predicate}


def _syllogism(entry: Entry) -> Fault | None:
    """Judge a conclusion by the rules of quality and distribution."""
    statements = re.findall(r"(All|No|Some) (\w+) are (not )?(\w+)", entry["question"])
    first, second, conclusion = (_Categorical(*found) for found in statements)
    terms = {conclusion.subject, conclusion.predicate}
    used = [each for each in (first, second) if {each.subject, each.predicate} == terms]
    used = used or [first, second]
    distributed = set().union(*(each.distributed for each in used))
    middle = {first.subject, first.predicate} & {second.subject, second.predicate}
    follows = (
        sum(each.negative for each in used) == conclusion.negative
        and conclusion.distributed <= distributed
        and (len(used) == 1 or middle <= distributed)
    )
    if follows and conclusion.particular and not any(each.particular for each in used):
        source = used[0].subject if not conclusion.negative else conclusion.subject
        if len(used) == 2 or source not in first.inhabited | second.inhabited:
            return _ambiguous("the conclusion follows only if no kind is empty")
    if follows == (entry["answer"] == "Yes"):
        return None
    return _false_label(f"the conclusion {'follows' if follows else 'does not follow'}")


def _time_intervals(entry: Entry) -> Fault | None:
    """Find labels that lack the time of the day or a millisecond, and ends before the start."""
    metadata = entry["metadata"]
    form = entry["metadata"]["expected_format"]
    stamp = r"(\d{4}-\d\d-\d\d) \(\w+\) (\d\d:\d\d:\d\d) ([-+]\d\d)(\d\d)"
    stamps = [
        f"{day}T{time}{hour}:{rest}"
        for day, time, hour, rest in re.findall(stamp, entry["question"])
    ]
    texts = stamps or [metadata["start_time"], metadata["end_time"]]
    start, end = (datetime.fromisoformat(text) for text in texts)
    if form.startswith("D") and end < start:
        return _unanswerable("it ends before it starts")
    duration = end - start
    parts = {
        "D": f"{duration.days}",
        "HH": f"{duration.seconds // 3600:02}",
        "MM": f"{duration.seconds // 60 % 60:02}",
        "SS": f"{duration.seconds % 60:02}",
        "mmm": f"{duration.microseconds // 1000:03}",
    }
    right = re.sub("|".join(parts), lambda found: parts[found[0]], form)
    if right != entry["answer"]:
        return _false_label(f"right: {right}")
    if form == "D days" and re.search("(started|began|departed) at", entry["question"]):
        return _ambiguous("the first and the last day may both count")
    if form.endswith("HH:MM") and duration.seconds % 60 >= 30:
        return _ambiguous("the minutes may be cut or rounded")
    if metadata["format"] == "%m/%d/%Y" and max(start.day, end.day) < 13:
        return _two_orders() if _day_first(end) - _day_first(start) != duration else None
    return None


_Point = tuple[int, int]


def _tsumego(entry: Entry) -> Fault | None:
    """Compare the answer with the moves that capture stones at once."""
    rows = entry["metadata"]["board"]
    size = len(rows)
    answer = entry["answer"]
    board = {(r, c): stone for r, row in enumerate(rows) for c, stone in enumerate(row)}
    last_liberties = _last_liberties(board)
    label = (size - int(answer[1:]), ord(answer[0]) - ord("A"))
    if label not in last_liberties:
        kind = FaultKind.FALSE_LABEL if last_liberties else FaultKind.UNANSWERABLE
        return Fault(kind=kind, detail=f"{answer} captures nothing")
    if len(last_liberties) == 1:
        return None
    taken = {at: len(set().union(*groups)) for at, groups in last_liberties.items()}
    most = max(taken.values())
    if "as many white stones as possible" in entry["question"]:
        if taken[label] < most:
            return _false_label(f"another move captures {most} stones")
        if list(taken.values()).count(most) == 1:
            return None
    return _ambiguous("several moves capture stones")


def _last_liberties(board: Mapping[_Point, str]) -> dict[_Point, list[set[_Point]]]:
    """Return the white groups in atari by the point where Black captures them."""
    found: dict[_Point, list[set[_Point]]] = {}
    left = {at for at, stone in board.items() if stone == "O"}
    while left:
        group = set()
        edge = {left.pop()}
        liberties = set()
        while edge:
            group |= edge
            around = {
                (r + down, c + right)
                for r, c in edge
                for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0))
            }
            liberties |= {at for at in around if board.get(at) == "."}
            edge = {at for at in around if board.get(at) == "O"} - group
        left -= group
        if len(liberties) == 1:
            found.setdefault(liberties.pop(), []).append(group)
    return found


CHECKS: Mapping[str, Callable[[Entry], Fault | None]] = {
    check.__name__[1:]: check
    for check in (
        *(_ab, _aiw, _basic_arithmetic, _caesar_cipher, _calendar_arithmetic, _circuit_logic),
        *(_codeio, _complex_arithmetic, _decimal_arithmetic, _emoji_mystery, _family_relationships),
        *(_figlet_font, _gsm_symbolic, _knight_swap, _letter_counting, _letter_jumble),
        *(_list_functions, _mahjong_puzzle, _manipulate_matrix, _modulo_grid, _needle_haystack),
        *(_number_filtering, _polynomial_equations, _pool_matrix, _power_function),
        *(_propositional_logic, _quantum_lock, _sentence_reordering, _simple_equations),
        *(_simple_geometry, _string_manipulation, _survo, _syllogism, _time_intervals, _tsumego),
    )
} | dict.fromkeys(("arc_1d", "arc_agi", "rearc"), _arc)
"""The check of each task that is known to make faulty items: the function of its name."""


def item_fault(task: str, entry: Entry) -> Fault | None:
    """Return the fault of an item, or None if there is none."""
    check = CHECKS.get(task)
    return check(entry) if check else None
