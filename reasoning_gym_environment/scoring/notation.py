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
}
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*{\s*(\d+)\s*}\s*{\s*(\d+)\s*}")
_POWER_OF_A_HALF = re.compile(
    r"(?:(?P<above>\d{1,99})\s*/\s*2|\(1/2\))\s*(?:\^|\*\*)\s*{?(?P<exponent>\d{1,3})}?",
    re.ASCII,
)
_DEGREES = re.compile(r"\s*(°|\^\\circ|\^\{\s*\\circ\s*\}|\\degree)\s*$")
_VARIABLE_X = re.compile(r"(?<![A-Za-z])X(?![A-Za-z])")
_SIGNS = str.maketrans(f"{_TIMES}·⋅÷\N{MINUS SIGN}[]", "***/-()")


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
    if oracle is None:  # the verifier judges, except formatting
        is_own = task not in ladder_heights()
        return answer if is_own else _unquoted(strip_formatting(answer))
    if answer.strip() == oracle.strip() or len(answer) > 4 * len(oracle) + 1000:
        return answer
    forms = [answer.strip(), *less_formatted(answer)]
    # A verifier that isn't the library's may judge notation.
    if task not in ladder_heights():
        return oracle if oracle in forms else answer
    if any(_is_same(task, question, form, oracle) for form in forms):
        return oracle
    # A string of JSON has quotes of its own.
    text = forms[-1] if task == "codeio" else _unquoted(forms[-1])
    text = _with_plain_signs(task, question, text)
    is_integral = task in ("simple_integration", "intermediate_integration")
    return _with_plain_names(text, oracle) if is_integral else text


def _is_same(task: str, question: str, text: str, oracle: str) -> bool:
    """Return whether a text is the oracle but for its notation."""
    if task == "advanced_geometry" and is_angle(text, _angle_at_b(question)):
        return True
    if task == "simple_geometry":
        text = _DEGREES.sub("", text)
    fraction = _LATEX_FRACTION.fullmatch(text)
    if fraction:
        text = f"{fraction[1]}/{fraction[2]}"
    name = re.match(r"([a-z])\s*=", text)
    if task == "simple_equations" and name and re.search(rf"\b{name[1]}\b", question):
        text = text[name.end() :]
    if task in PLAIN_NUMBERS and is_same_number(text, oracle):
        return True
    if task == "codeio":  # all within a string of JSON counts: blanks, commas, signs
        text = text.lower() if oracle in ("true", "false") else text
        return text == oracle or _is_same_json(text, oracle)
    text = _unquoted(text).replace("\N{MINUS SIGN}", "-")
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
        >>> _unquoted('"0, 1.13"'), _unquoted("`4` or `5`")
        ('0, 1.13', '`4` or `5`')
    """
    quote = text[:1]
    is_quoted = quote in ("'", '"', "`") and text.endswith(quote)
    if not is_quoted or text.count(quote) != 2:
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
        case "group_anagrams" | "palindrome_partitioning" if '"' not in text:
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


def is_angle(text: str, exact: float) -> bool:
    r"""Return whether a text is an angle, rounded to the places that it shows, at least two.

    Example:
        >>> [is_angle(text, 34.0953) for text in ("34.09", "34.10", "34.095°", r"34.1^\circ")]
        [False, True, True, True]
    """
    number = _read_number(_DEGREES.sub("", text))
    if number is None:
        return False
    value = float(number)
    places = next((n for n in range(2, 12) if round(value, n) == value), 12)
    return abs(value - exact) <= 0.5 * 10.0**-places + 1e-9


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
    text = text.strip().replace("\N{MINUS SIGN}", "-")
    if len(text) > 1000 or not _NUMBER.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))
