"""Guards that compare an answer with the oracle, whatever the task; helpers of all categories."""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from ..extraction import strip_formatting
from ..notation import is_amount, is_same_number


def longer_text(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse text beside the oracle that could be an answer: the library's default scoring pays."""
    return _longer(answer, entry["answer"])


def longer_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse odd separators, and as `longer_text` does, without those of thousands."""
    if has_odd_separators(answer):
        return 0.0
    return _longer(answer.replace(",", ""), entry["answer"].replace(",", ""))


_GROUPED = re.compile(
    r"[-+]?\d{1,3}((,\d{2,3})*,\d{3}|(_\d{3})+)(\.\d*)?(e[-+]?\d+)?", re.IGNORECASE
)
"""A number whose digits are in groups, also by lakhs and crores."""


def has_odd_separators(text: str) -> bool:
    """Return whether a text is a number with commas or underscores that don't group its digits.

    Python's `Decimal` ignores all underscores, and verifiers remove all commas.

    Example:
        >>> has_odd_separators("4__3412382"), has_odd_separators("4,3,4")
        (True, True)
        >>> has_odd_separators("43,412,382"), has_odd_separators("43_412_382")
        (False, False)
    """
    text = text.strip(" \n,")
    has_separators = "," in text or "_" in text
    is_number = re.fullmatch(r"[-+.\d,_e]+", text, re.IGNORECASE)
    return has_separators and bool(is_number) and not _GROUPED.fullmatch(text)


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
        parsed = json.loads(answer[begin : end + 1])
        length = len(json.dumps(parsed))
    except (ValueError, RecursionError):
        return 0.0
    is_short = length <= 1.25 * len(right) + 8
    return 1.0 if is_short or parsed == json.loads(right) else 0.0


def repeats_a_key(answer: str) -> bool:
    """Tell whether an answer is JSON that gives one key several values.

    Verifiers take the last one, so an answer could list a guess after another.
    """
    text = strip_formatting(answer.strip())
    if not text.startswith(("{", "[")):
        return False
    try:
        json.loads(text, object_pairs_hook=_with_unique_keys)
    except _RepeatedKey:
        return True
    except (ValueError, RecursionError):
        return False
    return False


class _RepeatedKey(Exception):
    """An object of JSON has a key twice."""


def _with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values_by_key = dict(pairs)
    if len(values_by_key) < len(pairs):
        raise _RepeatedKey
    return values_by_key


def longer_fraction(answer: str, entry: Mapping[str, Any]) -> float:
    r"""Refuse words and signs such as `%` after a `\frac{…}{…}`: the verifier ignores them."""
    fraction = re.compile(r"\\d?frac\s*{\s*\d+\s*}\s*{\s*\d+\s*}", re.IGNORECASE)
    match = fraction.match(answer.strip().strip("$").strip())
    formatting = re.compile(r"[\s.,;$*`\"'\\)\]}]*")
    has_more = match and not formatting.fullmatch(match.string[match.end() :])
    return 0.0 if has_more else 1.0


_NEGATED = re.compile(
    r"(?<![\w.)])-\s*\(*\s*$|\b(?:minus|negative)\s+\(*$", re.IGNORECASE
)
"""What makes the number after it negative."""

_CHANGING_BEFORE = re.compile(
    r"(?:[±∓√∛∜<>≤≥]|\\(?:pm|mp|sqrt|leq?|geq?|lt|gt)\b|\bsqrt)\s*[({]*\s*$"
)
"""What makes another number of the one after it: `±7`, `√7`, `< 7`."""

_CHANGING_AFTER = re.compile(
    r"\s*(?:\\?%|[‰²³±]|\\pm\b|(?:k|m|bn|percent|per cent|(?:hundred|thousand|million|billion"
    r"|trillion|dozen|lakh|crore)s?|squared|cubed|factorial|and a half)\b)|!(?!\w)",
    re.IGNORECASE,
)
"""What makes another number of the one before it: `7 %`, `7!`, `7 thousand`."""


def changes_number(before: str, after: str) -> bool:
    """Return whether the text around a number changes its value.

    An exclamation mark at the end of a sentence is none of a factorial.

    Example:
        >>> changes_number("±", ""), changes_number("", "!"), changes_number("It is ", "!")
        (True, True, False)
    """
    after = after.rstrip()
    is_sentence = after.startswith("!") and any(map(str.isalpha, before))
    is_changed = _CHANGING_AFTER.match(after) is not None and not is_sentence
    return is_changed or _CHANGING_BEFORE.search(before) is not None


def amount(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse all but one number, alone or with its unit: the verifier reads the first one."""
    return 1.0 if is_amount(answer, entry["question"], entry["answer"]) else 0.01


def _longer(answer: str, oracle: str) -> float:
    if not oracle or oracle not in answer:
        return 1.0
    if strip_formatting(answer) == oracle or is_same_number(answer, oracle):
        return 1.0
    before, _, after = answer.partition(oracle)
    joined = before[-1:].isalnum() or after[:1].isalnum() or before.endswith("-")
    is_number = oracle[-1:].isdigit()
    is_negated = oracle[:1].isdigit() and _NEGATED.search(before)
    is_changed = is_number and changes_number(before, after)
    return (
        0.0
        if joined
        or is_negated
        or is_changed
        or _offers_more(before + " " + after, oracle)
        else 1.0
    )


def _offers_more(text_beside: str, oracle: str) -> bool:
    """Return whether the text beside the oracle could be an answer, too."""
    if any(character.isdigit() for character in oracle):
        return any(character.isdigit() for character in text_beside)
    # Sets of possible answers, each with the word that negates them.
    for choices in (
        {"true", "false", "not"},
        {"yes", "no", "not"},
        {"on", "off", "undetermined", "not"},
        {"peng", "chi", "pass", "not"},
    ):
        if oracle.lower() in choices:
            return not choices.isdisjoint(re.findall(r"[^\W_]+", text_beside.lower()))
    return _has_words(text_beside) or any(
        character in oracle for character in "".join(text_beside.split())
    )


def is_denied(answer: str, oracle: str) -> bool:
    """Return whether an answer has a word or sign of denial that the right one lacks.

    Example:
        >>> is_denied("It is not 4", "4"), is_denied("4 (this is wrong)", "4")
        (True, True)
        >>> is_denied("No", "No"), is_denied("4, no more", "4"), is_denied("4? No.", "4")
        (False, False, True)
    """
    no = "no"
    # `42 (no remainder)` tells more of the number.
    if not any(map(str.isalpha, oracle)):
        no = (
            r"no(?!\s+(?!answer|chance|good|longer|right|correct|solution|way)[^\W\d_])"
        )
    denial = re.compile(  # `false` and `None` alone may be values
        rf"\b(?:not|{no}|never|neither|nor|none of|cannot|wrong\w*|incorrect\w*|is false|untrue"
        r"|invalid|impossible|mistaken?|except|unlike|any\w*(?: \w+)? but|(?:everything|all) but"
        r"|(?:other|rather) than|instead of"
        r"|(?:is|are|was|do|does|did|ca|wo)nt)\b|n['\u2019]t\b|~~|</?(?:del|s|strike)>"
        r"|\u2260|!=|\u00ac",
        re.IGNORECASE,
    )
    denials, right = (
        {m[0].lower() for m in denial.finditer(text)} for text in (answer, oracle)
    )
    return not denials <= right


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def credit_above_chance(
    answer_items: Sequence[Any],
    question_items: Sequence[Any],
    oracle_items: Sequence[Any],
    *,
    chance: float = 0.0,
) -> float:
    """Return the share of unshown items that are right, above what guessing gets.

    Args:
        answer_items: the items of the answer.
        question_items: the items of the question in the same places.
        oracle_items: the items of the oracle in the same places.
        chance: the share that a guess gets.
    """
    if len(answer_items) != len(oracle_items):
        return 0.0
    is_open: list[bool] = [
        a != b for a, b in zip(question_items, oracle_items, strict=True)
    ]
    if not any(is_open):
        return 1.0 if list(answer_items) == list(oracle_items) else 0.0
    hits = [
        a == b
        for a, b, counts in zip(answer_items, oracle_items, is_open, strict=True)
        if counts
    ]
    share: float = sum(hits) / len(hits)
    return max(0.0, (share - chance) / (1 - chance))


def bare(word: str) -> str:
    return word.lower().strip(string.punctuation + string.whitespace)


def closeness(actual: float, expected: float) -> float:
    """Return 1 if equal, falling linearly to 0 at a relative error of 2 %."""
    if actual == expected:
        return 1.0
    error = abs(actual - expected)
    limit = 0.02 * abs(expected)
    return 1 - error / limit if error < limit else 0.0


UNREADABLE = (
    SyntaxError,
    ValueError,
    TypeError,
    RecursionError,
    MemoryError,
    ArithmeticError,
)


def literal(answer: str, entry: Mapping[str, Any]) -> float:
    """Accept only literals: the answer is evaluated where the oracle is in reach."""
    if answer.strip() == entry["answer"].strip():
        return 1.0
    if answer in entry["metadata"].get("valid_answers", ()):
        return 1.0
    try:
        ast.literal_eval(answer.strip())
    except UNREADABLE:
        return 0.0
    return 1.0
