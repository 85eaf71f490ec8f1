"""Guards against text around the right answer, where verifiers pay if the answer contains it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..tolerance import strip_formatting

_CHOICES = (
    {"true", "false", "not"},
    {"yes", "no", "not"},
    {"on", "off", "undetermined", "not"},
    {"peng", "chi", "pass", "not"},
)
"""Sets of possible answers, each with the word that negates them."""

_FRACTION = re.compile(r"\\d?frac\s*{\s*\d+\s*}\s*{\s*\d+\s*}", re.IGNORECASE)

_MOST_LENGTH, _MORE_LENGTH = 1.25, 8
"""Longest object: a factor on the length of the right one, and characters besides."""


def longer_text(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse text beside the oracle that could be an answer: the library's default scoring pays."""
    return _max_score(answer, entry["answer"])


def longer_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse as `longer_text` does, without thousands separators."""
    return _max_score(answer.replace(",", ""), entry["answer"].replace(",", ""))


def longer_matrix(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse as `longer_text` does, with runs of spaces reduced to one."""
    rows = [" ".join(row.split()) for row in answer.strip().split("\n")]
    return _max_score("\n".join(rows), entry["answer"].strip())


def longer_move(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse as `longer_text` does, in upper case."""
    return _max_score(answer.strip().upper(), entry["answer"].strip())


def one_object(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse text around the one object: it lowers the score by half of its share only.

    Text that isn't one object is paid if it contains the right one. Similarity is an edit distance
    over the longer length as ASCII, so content that is long and cheap to leave out (empty keys,
    emoji) makes an object similar to any other.
    """
    right = entry["answer"].strip()
    answer = strip_formatting(answer.strip())
    begin, end = answer.find("{"), answer.rfind("}")
    if begin < 0 or end < 0 or answer == right:
        return 1.0
    if _has_words(answer[:begin] + answer[end + 1 :]):
        return 0.0
    try:
        found = json.loads(answer[begin : end + 1])
        length = len(json.dumps(found))
    except (ValueError, RecursionError):
        return 0.0
    is_short = length <= _MOST_LENGTH * len(right) + _MORE_LENGTH
    return 1.0 if is_short or found == json.loads(right) else 0.0


def longer_fraction(answer: str, entry: Mapping[str, Any]) -> float:
    r"""Refuse words after a `\frac{…}{…}`: the verifier ignores them."""
    match = _FRACTION.match(answer.strip().strip("$").strip())
    return 0.0 if match and _has_words(match.string[match.end() :]) else 1.0


def first_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse a wrong sign: the verifier reads the first number of a text without its sign."""
    first = re.search(r"((?<![\w.)])[-\u2212])?\d", answer)
    is_negative = first is not None and first[1] is not None
    return 0.0 if is_negative and float(entry["answer"]) > 0 else 1.0


def _max_score(answer: str, oracle: str) -> float:
    if not oracle or oracle not in answer:
        return 1.0
    if strip_formatting(answer) == oracle or _same_number(answer, oracle):
        return 1.0
    before, _, after = answer.partition(oracle)
    joined = before[-1:].isalnum() or after[:1].isalnum() or before.endswith(("-", "\u2212"))
    return 0.0 if joined or _offers_more(before + " " + after, oracle) else 1.0


def _offers_more(rest: str, oracle: str) -> bool:
    """Return whether the text beside the oracle could be an answer, too."""
    if any(character.isdigit() for character in oracle):
        return any(character.isdigit() for character in rest)
    for choices in _CHOICES:
        if oracle.lower() in choices:
            return not choices.isdisjoint(re.findall(r"[^\W_]+", rest.lower()))
    return _has_words(rest) or any(character in oracle for character in "".join(rest.split()))


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _same_number(answer: str, oracle: str) -> bool:
    try:
        return Decimal(answer) == Decimal(oracle)
    except ArithmeticError:  # not numbers
        return False
