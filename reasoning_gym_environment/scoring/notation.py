"""An answer in the notation that its verifier reads.

An answer is the task's own but for its notation if they differ only in formatting, blanks between
parts, quotes, the letter case of words such as `True`, JSON's layout, or the form of a number.
Other signs, such as `^` for `**`, are replaced, and the verifier judges the result. Neither makes a
wrong answer right: `tests/scoring/test_forms.py` proves it.
"""

from __future__ import annotations

import cmath
import json
import math
import re
from decimal import Decimal

from ..tasks.facts import PLAIN_NUMBERS, ladder_heights
from .characters import plain_answer, plain_characters
from .extraction import less_formatted, strip_formatting

_NUMBER = re.compile(
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:e[-+]?\d{1,3})?",
    re.IGNORECASE | re.ASCII,
)
_WORD = re.compile(
    "yes|no|true|false|on|off|undetermined|infeasible|peng|chi|pass|(mon|tues|wednes|thurs|fri|satur|sun)day"
)
"""Answers that no other answer differs from in letter case alone."""

_TIMES = "\N{MULTIPLICATION SIGN}"
_LATEX_SIGNS = {
    r"\times": _TIMES,
    r"\cdot": "·",
    r"\div": "÷",
    r"\left": "",
    r"\right": "",
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\cfrac": r"\frac",
}
_LATEX_FRACTION = re.compile(r"\\[cdt]?frac\s*{\s*(\d+)\s*}\s*{\s*(\d+)\s*}")
_POWER_OF_A_HALF = re.compile(
    r"(?:(?P<above>\d{1,99})\s*/\s*2|\(1/2\))\s*(?:\^|\*\*)\s*{?(?P<exponent>\d{1,3})}?",
    re.ASCII,
)
_DEGREES = re.compile(r"(°|\^\\circ|\^\{\s*\\circ\s*\}|\\degree)$")
_VARIABLE_X = re.compile(r"(?<![A-Za-z])X(?![A-Za-z])")
_SIGNS = str.maketrans(f"{_TIMES}·⋅÷[]", "***/()")
_NAMED = re.compile(r"([A-Za-z])\s*=\s*([^=]+)")
_DASHED = re.compile(r"-\s+(?=[A-Za-z]{2})")
_JSON_ANSWER = re.compile(r'\{\s*"answer"\s*:(.*)\}', re.DOTALL)
_TABLE_RULE = re.compile(r"(:?-{2,}:?)?")
"""A cell of the line below a table's head, or of an empty head."""


def readable_form(
    task: str,
    question: str,
    answer: str,
    oracle: str | None,
) -> str:
    """Return an answer in the verifier's notation: the oracle if it is that in another one.

    Example:
        >>> readable_form("fraction_simplification", "", "**17 / 45**", "17/45")
        '17/45'
        >>> readable_form("puzzle24", "Make 24 using 6, 4", "6 ÷ 4 = 24", "4*6")
        '6 / 4'
    """
    is_own = task not in ladder_heights()
    if not is_own:
        answer = plain_answer(task, answer)
    if oracle is None:  # the verifier judges, except formatting
        if is_own:
            return answer
        text = strip_formatting(answer)
        return _unquoted(_without_wrappers(task, question, text, ""))
    if answer.strip() == oracle.strip() or len(answer) > 4 * len(oracle) + 1000:
        return answer
    forms = [answer.strip(), *less_formatted(answer)]
    # A verifier that isn't the library's may judge notation.
    if is_own:
        return oracle if oracle in forms else answer
    unwrapped = _without_wrappers(task, question, forms[-1], oracle)
    if unwrapped != forms[-1]:
        forms.append(unwrapped)
    if any(_is_same(task, question, form, oracle) for form in forms):
        return oracle
    # A string of JSON has quotes of its own.
    text = forms[-1] if task == "codeio" else _unquoted(forms[-1])
    text = _with_plain_signs(task, question, text)
    is_integral = task in ("simple_integration", "intermediate_integration")
    return _with_plain_names(text, oracle) if is_integral else text


def _without_wrappers(task: str, question: str, text: str, oracle: str) -> str:
    r"""Return a text without a bullet, a name, JSON and a table around it.

    Example:
        >>> _without_wrappers("gcd", "", '{"answer": "**x = 42**"}', "42")
        '42'
        >>> _without_wrappers("rotate_matrix", "", "| 1 | 2 |\n|--|--|\n| 3 | 4 |", "1 2\n3 4")
        '1 2\n3 4'
    """
    if task == "codeio":  # its labels are any JSON
        return text
    value = _answer_of_json(text)
    if value != text:
        text = strip_formatting(value)
    if re.match("[A-Za-z]{2}", oracle) and "(" not in oracle:
        text = _DASHED.sub("", text, count=1) if _DASHED.match(text) else text
    named = _NAMED.fullmatch(text)
    # Without a label, `P = Q` may be a statement.
    if named and oracle and _may_name(task, question, named[1]):
        text = strip_formatting(named[2])
    if "\n" in oracle and "\n\n" not in oracle:
        text = _plain_grid(text, oracle)
    return text


def _may_name(task: str, question: str, name: str) -> bool:
    """Return whether a letter may stand for the answer; an equation asks for its own variable."""
    asks_for_a_name = task == "simple_equations"
    return not asks_for_a_name or re.search(rf"\b{name}\b", question) is not None


def _answer_of_json(text: str) -> str:
    """Return the value of an object with the one key `answer`; another text as it is."""
    object_of_json = _JSON_ANSWER.fullmatch(text)
    if not object_of_json:
        return text
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return text
    if len(pairs) != 1:  # another key, or the same one again
        return text
    [(_, value)] = pairs
    return value if isinstance(value, str) else object_of_json[1].strip()


def _plain_grid(text: str, oracle: str) -> str:
    """Return rows without blank lines, and the cells of a Markdown table as the oracle has them."""
    rows = [line.strip() for line in text.split("\n") if line.strip()]
    if not all(len(row) > 1 and row[0] == row[-1] == "|" for row in rows):
        return "\n".join(rows)
    blank = " " if " " in oracle else ""
    table = [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]
    return "\n".join(
        blank.join(cells)
        for cells in table
        if not all(map(_TABLE_RULE.fullmatch, cells))
    )


def _is_same(task: str, question: str, text: str, oracle: str) -> bool:
    """Return whether a text is the oracle but for its notation."""
    if task == "advanced_geometry" and is_angle(text, _angle_at_b(question)):
        return True
    if task == "simple_geometry":
        text = _without_degrees(text)
    fraction = _LATEX_FRACTION.fullmatch(text)
    if fraction:
        text = f"{fraction[1]}/{fraction[2]}"
    if task in PLAIN_NUMBERS and is_same_number(text, oracle):
        return True
    if task == "gsm_symbolic":
        return is_amount(text, question, oracle)
    if task == "codeio":  # all within a string of JSON counts: blanks, commas, signs
        text = text.lower() if oracle in ("true", "false") else text
        return text == oracle or _is_same_json(text, oracle)
    text = _unquoted(text)
    text = re.sub(r"(?<=\d)\s*/\s*(?=\d)", "/", text)
    text = re.sub(r"(?<=[A-Za-z]),\s*(?=\w)|(?<=\w),\s*(?=[A-Za-z])", ", ", text)
    if task == "base_conversion" or _WORD.fullmatch(oracle.lower()):
        text = text.lower()
        oracle = oracle.lower()
    if _rows_of_words(text) == _rows_of_words(oracle):
        return True
    return oracle[:1] in ("[", "{") and _is_same_json(text, oracle)


def _rows_of_words(text: str) -> list[list[str]]:
    return [row.split() for row in text.split("\n")]


def _unquoted(text: str) -> str:
    """Return a text without the one pair of quotes around it.

    Example:
        >>> _unquoted('"0, 1.13"'), _unquoted("`4` or `5`"), _unquoted('"["a"]"')
        ('0, 1.13', '`4` or `5`', '["a"]')
    """
    quote = text[:1]
    is_quoted = quote in ("'", '"', "`") and text.endswith(quote)
    is_json = text[1:2] + text[-2:-1] in ("[]", "{}")
    if not is_quoted or (text.count(quote) != 2 and not is_json):
        return text
    return text[1:-1].strip() or text


def _is_same_json(text: str, oracle: str) -> bool:
    if oracle.startswith("['"):  # a list as Python writes it
        text = text.replace("'", '"')
        oracle = oracle.replace("'", '"')
    try:
        return _sorted_json(text) == _sorted_json(oracle)
    except (ValueError, RecursionError):
        return False


def _sorted_json(text: str) -> str:
    value = json.loads(text, parse_float=_plain_float)
    return json.dumps(value, sort_keys=True)


def _plain_float(text: str) -> float | int:
    """Return a whole number as an integer: `2.0` is 2."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _with_plain_signs(task: str, question: str, text: str) -> str:
    """Return a text with the signs that the task's verifier reads."""
    unchanged = text
    text = re.sub(
        r"\\[a-z]+", lambda command: _LATEX_SIGNS.get(command[0], command[0]), text
    )
    match task:
        case "prime_factorization" if re.fullmatch(
            rf"\d+(\s*[xX*·⋅{_TIMES}]\s*\d+)*", text
        ):
            return f" {_TIMES} ".join(re.findall(r"\d+", text))
        case "fraction_simplification":
            return text
        case "n_queens":
            return "\n".join(line.strip() for line in text.split("\n"))
        case "group_anagrams" | "jugs" | "knight_swap" | "palindrome_partitioning" if (
            '"' not in text
        ):
            return text.replace("'", '"')  # a list as Python writes it
        case "coin_flip":
            return _plain_probability(text)
        case "countdown" | "puzzle24":
            end = re.search(r"\s*=\s*(\d+)$", text)
            if end and re.search(
                rf"\b(Make|make|equals|Calculate) {end[1]}\b", question
            ):
                text = text[: end.start()]
            return re.sub(r"(?<=[\d)])\s*[xX]\s*(?=[\d(])", " * ", text).translate(
                _SIGNS
            )
        case (
            "polynomial_multiplication"
            | "simple_integration"
            | "intermediate_integration"
        ):
            return text.replace("^", "**").translate(_SIGNS)
    return unchanged


def _with_plain_names(text: str, oracle: str) -> str:
    """Return an antiderivative with the names that its verifier reads.

    The library asks for integrals of X with `dx`, and of constants with a label in X: an answer
    without X may call the variable x.

    Example:
        >>> _with_plain_names("93*x/10 + arctan(x)", "93*X/10 + atan(X) + C")
        '93*X/10 + atan(X)'
    """
    text = re.sub(r"\barc(?=(sin|cos|tan|cot|sec|csc)h?\b)", "a", text)
    if _VARIABLE_X.search(oracle) and not _VARIABLE_X.search(text):
        text = re.sub(r"(?<![A-Za-z])x(?![A-Za-z])", "X", text)
    return text


def _plain_probability(text: str) -> str:
    r"""Return a probability without percent signs, LaTeX and blanks around the slash.

    Example:
        >>> _plain_probability("77.34%"), _plain_probability(r"\frac{99}{128}")
        ('0.7734', '99/128')
        >>> _plain_probability("11/2^10"), _plain_probability("(1/2)**3")
        ('11/1024', '1/8')
    """
    fraction = _LATEX_FRACTION.fullmatch(text)
    if fraction:
        return f"{fraction[1]}/{fraction[2]}"
    power = _POWER_OF_A_HALF.fullmatch(text)
    if power:
        return f"{power['above'] or 1}/{2 ** int(power['exponent'])}"
    percent = re.fullmatch(r"(\d{1,3}(?:\.\d{1,100})?)\s*\\?%", text)
    if percent:
        return str(Decimal(percent[1]) / 100)
    return re.sub(r"\s*/\s*", "/", text)  # Python's `Fraction` reads blanks since 3.12


def _angle_at_b(question: str) -> float:
    """Return the angle in degrees that a question about a triangle asks for; NaN for another."""
    corners = re.findall(r"[ABC]=\((-?\d+), (-?\d+)\)", question)
    if len(corners) != 3 or "in degrees" not in question:
        return math.nan
    a, b, c = (complex(int(x), int(y)) for x, y in corners)
    return abs(math.degrees(cmath.phase((a - b) / (c - b))))


def _without_degrees(text: str) -> str:
    """Return a text without the sign of degrees at its end, and without blanks around it."""
    # Blanks in the pattern would take the square of their number.
    return _DEGREES.sub("", text.strip()).rstrip()


def is_angle(text: str, exact: float) -> bool:
    r"""Return whether a text is an angle, rounded to the places that it shows, at least two.

    Example:
        >>> [is_angle(text, 34.0953) for text in ("34.09", "34.10", "34.095°", r"34.1^\circ")]
        [False, True, True, True]
    """
    number = _read_number(_without_degrees(text))
    if number is None:
        return False
    value = float(number)
    places = next((n for n in range(2, 12) if round(value, n) == value), 12)
    return abs(value - exact) <= 0.5 * 10.0**-places + 1e-9


_CURRENCY = r"(?:US)?\\?\$|[€£¥₹]|\b(?:USD|EUR|GBP|dollars?|euros?)\b"
_AMOUNT = re.compile(
    rf"(?P<sign>-?) ?(?:{_CURRENCY})? ?(?P<number>{_NUMBER.pattern}) ?(?:{_CURRENCY})?"
    r"(?:(?P<unit> ?/? ?[a-z][a-z' /-]{0,99})!?)?\.?",  # `384!` is a factorial
    re.IGNORECASE | re.ASCII,
)
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm)\{([^{}]*)\}")
_JOINING_WORD = re.compile("an?|each|every|in|left|of|per|the|total")
_MEASURE = re.compile(
    "cent|penn(y|ie)|second|minute|hour|day|week|month|year|inch(e)?|foot|feet|yard|mile"
    "|(milli|centi|kilo)?meter|(kilo)?gram|ounce|pound|ton|(milli)?liter|pint|quart|gallon"
)
"""Units that convert into one another: a question that names several asks for one of them."""

_CHANGING_WORD = re.compile(
    "no|not|never|and|or|but|to|than|times?|by|minus?|plus?|less?|twice|double|triple|squared|cubed"
    "|half|halve|third|quarter|dozen|hundred|thousand|(m|b)illion|percent(age)?"
    "|one|two|three|four|five|six|seven|eight|nine|ten"
)
"""Words that make another number of the one before them, even words of the question."""


def is_amount(answer: str, question: str, oracle: str) -> bool:
    """Return whether an answer to a word problem is one number, equal to the oracle.

    The number stands alone, with a currency or a unit, or is the right side of the last equation.
    A unit has words of the question alone, and is one that the question asks for.

    Example:
        >>> asked = "How many eggs does she eat in two days?"
        >>> [is_amount(text, asked, "384") for text in ("192 + 192 = 384", "384 eggs", "$384")]
        [True, True, True]
        >>> [is_amount(text, asked, "384") for text in ("384 + 6 = 390", "384 dozen", "< 384")]
        [False, False, False]
    """
    text = strip_formatting(answer)
    left_side, equals, right_side = text.rpartition("=")
    if equals:
        if not _is_working(left_side, question):
            return False
        text = strip_formatting(right_side)
    text = _LATEX_TEXT.sub(r" \1", text.replace("\\ ", " "))
    amount = _AMOUNT.fullmatch(" ".join(_unquoted(text).strip("()").split()))
    if amount is None or not _is_unit(amount["unit"] or "", question):
        return False
    return is_same_number(amount["sign"] + amount["number"], oracle)


def _is_working(text: str, question: str) -> bool:
    """Return whether a text before an equals sign is arithmetic, with names of the question."""
    text = re.sub(
        r"\\(?:times|cdot|div|[cdt]?frac|left|right|text|mathrm|[$%,;])", " ", text
    )
    if not re.fullmatch(rf"[\w\s.,;:+*/{_TIMES}·⋅÷()^%$€£¥₹={{}}-]*", text):
        return False
    allowed = _words(question) | {"so", "then", "thu", "therefore", "total", "answer"}
    words = {word for word in _words(text) if len(word) > 1}
    return words <= allowed and words.isdisjoint({"no", "not", "never"})


def _is_unit(text: str, question: str) -> bool:
    """Return whether words after a number name what the question counts."""
    words_asked = _words(question)
    sentences = re.findall(r"[^.?!]*[?]", question)
    measures_asked = _words(sentences[-1] if sentences else question)
    for word in _words(text):
        if _CHANGING_WORD.fullmatch(word):
            return False
        if _JOINING_WORD.fullmatch(word):
            continue
        is_measure = _MEASURE.fullmatch(word)
        if word not in (measures_asked if is_measure else words_asked):
            return False
    return True


def _words(text: str) -> set[str]:
    """Return the words of a text in lower case, without the `s` of plurals."""
    return {word.removesuffix("s") for word in re.findall("[a-z]+", text.lower())}


def is_same_number(answer: str, oracle: str) -> bool:
    """Return whether both are one number and equal, whatever their forms.

    Reads signs, leading zeros, thousands separators, decimal points and exponents. An expression
    such as `3/3` is not a number: the question may ask for its value.

    Example:
        >>> is_same_number("+1,850.0", "1850"), is_same_number("1.85e3", "1850")
        (True, True)
        >>> is_same_number("3700/2", "1850")
        False
    """
    number = _read_number(answer)
    return number is not None and number == _read_number(oracle)


def _read_number(text: str) -> Decimal | None:
    """Return the exact value of a number of ordinary size, None for any other text."""
    text = plain_characters(text.strip())
    if len(text) > 1000 or not _NUMBER.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))
