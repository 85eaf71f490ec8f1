"""Guards of tasks of the category algorithmic."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..extraction import strip_formatting
from .oracle import bare, credit_above_chance


def living_cells(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for the share of living cells found: the verifier pays for dead ones, and most are."""
    try:
        board = json.loads(answer)
        right = json.loads(entry["answer"])
    except (ValueError, RecursionError):  # the verifier can't read it either
        return 1.0
    if not isinstance(board, list) or len(board) != len(right):
        return 0.0
    if any(
        not isinstance(a, list) or len(a) != len(b)
        for a, b in zip(board, right, strict=True)
    ):
        return 0.0
    pairs = [
        pair
        for rows in zip(board, right, strict=True)
        for pair in zip(*rows, strict=True)
    ]
    living = [(a, b) for a, b in pairs if a != 0 or b != 0]
    return sum(a == b for a, b in living) / len(living) if living else 1.0


def reversed_word(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for letters that move: the others are paid for, too, and what follows is ignored.

    A sign after the word, such as `%`, earns what the verifier gives it: at some lengths its sum of
    floats misses the sign.
    """
    right = bare(entry["answer"])
    credit = credit_above_chance(bare(answer), right[::-1], right)
    whole = entry["answer"].lower()
    text = strip_formatting(answer.strip()).lower()
    has_more = text != whole and text.startswith(whole)
    return min(credit, 0.8) if has_more else credit


def unscrambled_words(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for scrambled words only: the others are paid for, too, and words that follow ignored."""
    scrambled = " ".join(entry["metadata"]["scrambled_words"])
    return _word_credit(answer, scrambled, entry["answer"])


def reordered_words(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for words that moved: those that stay are paid for, too, and one repeated word."""
    _, _, shuffled = entry["question"].partition(": ")
    right: str = entry["answer"]
    if sorted(answer.lower().split()) != sorted(right.lower().split()):
        return 0.0
    return _word_credit(answer, shuffled, right)


def _word_credit(answer: str, question_words: str, right: str) -> float:
    return credit_above_chance(
        answer.lower().split(), question_words.lower().split(), right.lower().split()
    )


def sorted_words(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for words that moved: any order is paid for, and words that follow are ignored."""
    metadata = entry["metadata"]
    words = [word.strip() for word in re.split(r",\s*", answer)]
    return credit_above_chance(
        words, metadata["transformed_words"], metadata["sorted_words"]
    )


def given_numbers(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse numbers that the question doesn't give: each may be off by 1, and NaN by anything."""
    try:
        numbers = sorted(
            float(number) for number in json.loads(answer.replace("'", '"'))
        )
    except (ValueError, TypeError, RecursionError, OverflowError):
        return 1.0  # the verifier can't either
    return (
        1.0
        if numbers == sorted(map(float, entry["metadata"]["sorted_numbers"]))
        else 0.0
    )


def pooled_numbers(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse numbers that aren't the exact ones, rounded to the places shown, at least two.

    The question asks for two decimals, and the verifier allows an error of 1 %.
    """
    right = entry["metadata"]["solution"]
    rows = [line.split() for line in answer.splitlines() if line.strip()]
    if [len(row) for row in rows] != [len(row) for row in right]:
        return 0.0
    pairs = zip(itertools.chain(*rows), itertools.chain(*right), strict=True)
    if all(_is_rounded(text, exact) for text, exact in pairs):
        return 1.0
    return 0.1  # as the verifier for any matrix of the right shape


def _is_rounded(text: str, exact: float) -> bool:
    """Return whether a text is a number rounded to the places that it shows, at least two."""
    try:
        value = Decimal(text)
        exponent = value.normalize().as_tuple().exponent
    except ArithmeticError:  # not a number
        return False
    if not isinstance(exponent, int):  # not finite
        return False
    half_a_unit = 0.5 * 10.0 ** min(-2, exponent)
    # Halves may be rounded up or down.
    return abs(float(value) - exact) <= half_a_unit + 1e-9
