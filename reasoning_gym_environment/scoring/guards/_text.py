"""Guards of texts, words and grids: text around the right answer, and credit for what is shown.

Many verifiers pay if the answer only contains the right one, for what the question already shows,
or for what a guess gets right by chance.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from ..extraction import is_same_number, strip_formatting


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


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def credit_above_chance(
    found: Sequence[Any], shown: Sequence[Any], right: Sequence[Any], *, chance: float = 0.0
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
    puzzle, solution = entry["metadata"]["puzzle"], entry["metadata"]["solution"]
    size = len(solution)
    rows = [[int(c) for c in line if c in "123456789"] for line in answer.split("\n")]
    rows = [row for row in rows if len(row) == size][:size]
    blank = [0] * size
    rows = [row if len(set(row)) == size else blank for row in rows]
    rows += [blank] * (size - len(rows))
    return credit_above_chance(_cells(rows), _cells(puzzle), _cells(solution), chance=1 / size)


def _cells(rows: list[list[int]]) -> list[int]:
    return [cell for row in rows for cell in row]


def living_cells(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for the share of living cells found: the verifier pays for dead ones, and most are."""
    try:
        found, right = json.loads(answer), json.loads(entry["answer"])
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
    found, right = _bare(answer.replace(" ", "")), _bare(entry["answer"])
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
