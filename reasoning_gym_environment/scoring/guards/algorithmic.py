"""Guards of tasks of the category algorithmic."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

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
    """Pay for letters that move: the others are paid for, too, and what follows is ignored."""
    right = bare(entry["answer"])
    return credit_above_chance(bare(answer), right[::-1], right)


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
    return credit_above_chance(
        answer.lower().split(), shown.lower().split(), right.lower().split()
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
    except (
        ValueError,
        TypeError,
        RecursionError,
        OverflowError,
    ):  # the verifier can't either
        return 1.0
    return (
        1.0
        if numbers == sorted(map(float, entry["metadata"]["sorted_numbers"]))
        else 0.0
    )


def pooled_numbers(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse errors above 0.01: the question asks for two decimals, the verifier allows 1 %."""
    try:
        numbers, right = (
            [float(cell) for cell in text.split()] for text in (answer, entry["answer"])
        )
    except ValueError:
        return 0.0
    if len(numbers) != len(right):
        return 1.0
    errors = [abs(a - b) for a, b in zip(numbers, right, strict=True)]
    # One unit of the second decimal, as halves may be rounded up or down. The verifier pays 0.1 for
    # any matrix of the right shape.
    return 1.0 if max(errors, default=0.0) < 0.0101 else 0.1
