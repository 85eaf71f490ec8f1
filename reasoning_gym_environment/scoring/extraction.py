"""The answer of a completion, without formatting, and in the notation that its verifier reads.

A completion must have exactly one `<answer>…</answer>` outside the thought, which `channels`
tells from the reply.

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
from collections import deque
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice, pairwise
from typing import NamedTuple

from ..records import Fault, FaultKind, Status
from ..tasks.facts import PLAIN_NUMBERS, ladder_heights
from .channels import Tag, find_tags, split_thought

_PAIRED = re.compile(r"\*\*|\$\$?")
_POWER = re.compile(r"(?<=[\w)])\*\*(?=[\w(-])")
"""What isn't the end of bold text, as in `**x**2 + 1**`."""
_FENCE = re.compile(r"```(?:[\w+-]*\n)?")
_LEAD = re.compile(
    r"\*\*WORDS\s*:\s*\*\*|\*\*WORDS\*\*\s*:|WORDS\s*:|WORDS\s+is\b\s*:?".replace(
        "WORDS", r"(?:the\s+)?(?:final\s+)?answer"
    ),
    re.IGNORECASE,
)
"""What introduces an answer, such as `The final answer is:`."""

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


_ANSWER = ("<answer>", "</answer>")


class Extraction(NamedTuple):
    """The answer, or None with the status and the detail that say why."""

    answer: str | None
    failure: Status | None = None
    detail: str = ""


def in_tags(answer: str) -> str:
    """Return the shortest completion that gives an answer.

    Example:
        >>> in_tags("4")
        '<answer>4</answer>'
    """
    return f"<answer>{answer}</answer>"


def as_completion(answer: str) -> str:
    """Return a completion for a bare answer, without its thought; it may be a completion already.

    Example:
        >>> as_completion("<think>2 + 2</think>4")
        '<answer>4</answer>'
    """
    if "<answer>" in answer.lower():
        return answer
    _, outside = split_thought(answer)
    return in_tags(outside)


def extract_answer(text: str) -> Extraction:
    """Return the one answer of a completion.

    Tags count in any letter case. A tag beside a complete answer counts as several answers:
    another one begins there.

    Example:
        >>> extract_answer("<think>easy</think><answer> 4 </answer>").answer
        '4'
    """
    _, outside = split_thought(text)
    tags = find_tags(outside, *_ANSWER, any_case=True)
    answers = [
        outside[opening.end : closing.start].strip()
        for opening, closing in pairwise(tags)
        if opening.opens and not closing.opens
    ]
    if not answers:
        return Extraction(None, Status.NO_ANSWER, _why_none(text, outside, tags))
    if len(tags) > 2:
        detail = f"{len(tags)} answer tags outside the thought instead of one <answer>…</answer>"
        return Extraction(None, Status.SEVERAL_ANSWERS, detail)
    [answer] = answers
    if not answer:
        return Extraction(None, Status.NO_ANSWER, "nothing between the answer tags")
    return Extraction(answer)


def label_fault(label: str | None) -> Fault | None:
    """Return why no completion can give a label as its answer; None if one can.

    Blanks around a label are left to its verifier.

    Example:
        >>> label_fault("a</think>b").kind.value, label_fault("12 ")
        ('unanswerable', None)
    """
    if label is None:
        return None
    extraction = extract_answer(in_tags(label))
    if extraction.answer == label.strip():
        return None
    why = (
        extraction.detail or f"a part is read as its answer, {extraction.answer!r:.40}"
    )
    return Fault(FaultKind.UNANSWERABLE, f"the label can't be given: {why}")


def _why_none(text: str, outside: str, tags: Sequence[Tag]) -> str:
    """Return why a text has no complete answer outside its thought."""
    if not text.strip():
        return "the completion is empty"
    if tags:
        return "an answer tag without its pair"
    if not find_tags(text, *_ANSWER, any_case=True):
        return "no <answer>…</answer>"
    return "the answer tags are in the thought" + (
        "" if outside else ", which never ends"
    )


def strip_formatting(answer: str) -> str:
    r"""Remove the formatting around an answer; never return an empty one.

    Removes one mark after the other until nothing changes, in time linear in the length.

    Example:
        >>> strip_formatting(r"The answer is **$\boxed{42}$**.")
        '42'
        >>> strip_formatting("**a** and **b**")
        '**a** and **b**'
    """
    innermost = deque(_spans(answer), maxlen=1)
    return answer[slice(*innermost[0])] if innermost else answer


def less_formatted(answer: str) -> list[str]:
    """Return the answer without its outermost mark, without the next one too, and so on.

    The last one is `strip_formatting`'s; of many marks, some of those in between are left out.

    Example:
        >>> less_formatted("**Yes.**")
        ['Yes.', 'Yes']
    """
    first = [answer[slice(*span)] for span in islice(_spans(answer), 8)]
    return first if len(first) < 8 else [*first, strip_formatting(answer)]


def _spans(answer: str) -> Iterator[tuple[int, int]]:
    """Yield the span within the outermost mark, within the next one, and so on."""
    closings = _closing_braces(answer) if "\\boxed{" in answer else {}
    span = _trimmed(answer, 0, len(answer))
    while (inner := _inside(answer, *span, closings)) != span:
        yield (span := inner)


def _inside(
    text: str,
    begin: int,
    end: int,
    closings: dict[int, int],
) -> tuple[int, int]:
    """Return the span within its outermost mark, or the span itself if that leaves nothing."""
    inner = begin, end
    box = "\\boxed{"
    lead = _LEAD.match(text, begin, end)
    if lead:
        inner = lead.end(), end
    elif fence := _FENCE.match(text, begin, end):
        inner = _between(text, begin, end, fence[0], "```")
    elif mark := _PAIRED.match(text, begin, end):
        inner = _between(text, begin, end, mark[0], mark[0])
    elif text.startswith(("\\(", "\\["), begin, end):
        closing = "\\)" if text[begin + 1] == "(" else "\\]"
        inner = _between(text, begin, end, text[begin : begin + 2], closing)
    elif (
        text.startswith(box, begin, end)
        and closings.get(begin + len(box) - 1) == end - 1
    ):
        inner = begin + len(box), end - 1
    # A full stop after a word. (So none follows another, which keeps it linear.)
    if inner == (begin, end) and re.fullmatch(
        r"[^\s.]\.", text[max(begin, end - 2) : end]
    ):
        inner = begin, end - 1
    inner = _trimmed(text, *inner)
    return inner if inner[0] < inner[1] else (begin, end)


def _between(
    text: str,
    begin: int,
    end: int,
    opening: str,
    closing: str,
) -> tuple[int, int]:
    """Return the span between two marks if the first closing one ends the text."""
    start = begin + len(opening)
    stop = text.find(closing, start, end)
    while closing == "**" and _POWER.match(text, stop, end):
        stop = text.find(closing, stop + 2, end)
    return (start, stop) if stop == end - len(closing) else (begin, end)


def _trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    return begin, end


def _closing_braces(text: str) -> dict[int, int]:
    """Return where each opening brace is closed."""
    closings: dict[int, int] = {}
    open_braces: list[int] = []
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            open_braces.append(brace.start())
        elif open_braces:
            closings[open_braces.pop()] = brace.start()
    return closings


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
    rows, right = ([row.split() for row in each.split("\n")] for each in (text, oracle))
    return rows == right or (oracle[:1] in ("[", "{") and _is_same_json(text, oracle))


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
        one, other = (
            json.dumps(json.loads(each, parse_float=_plain_float), sort_keys=True)
            for each in (text, oracle)
        )
    except (ValueError, RecursionError):
        return False
    return one == other


def _plain_float(text: str) -> float | int:
    """Return a whole number as an integer: `2.0` is 2."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _with_plain_signs(task: str, question: str, text: str) -> str:
    """Return a text with the signs that the task's verifier reads."""
    given = text
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
    return given


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
