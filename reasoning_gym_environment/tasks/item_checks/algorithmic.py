"""Checks of items of the category algorithmic."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...records import Fault
from .faults import Entry, ambiguous, false_label, unanswerable


def ab(entry: Entry) -> Fault | None:
    return (
        None if entry["answer"] else unanswerable("the right answer is an empty text")
    )


def caesar_cipher(entry: Entry) -> Fault | None:
    text = entry["answer"]
    if not text.isascii():
        return false_label("a letter outside A to Z is lost in the cipher")
    # No other shift turns these two words of three letters into a word.
    if len(text.replace(" ", "")) > 3 or text in ("MRS", "YES"):
        return None
    return ambiguous(f"{len(text)} letters don't tell the shift")


def string_splitting(entry: Entry) -> Fault | None:
    """Find items that end by the bound on rules: exhausting one may count once, or each time."""
    # The first state is the one that the question gives.
    if len(entry["metadata"]["states"]) - 1 < 1000:
        return None
    return ambiguous("it is open what 1000 applications of the rules are")


def letter_counting(entry: Entry) -> Fault | None:
    letter = entry["metadata"]["target_letter"]
    span = entry["metadata"]["span"]
    capitals = sum(word.count(letter.upper()) for word in span)
    if not capitals or not letter.isalpha():
        return None
    return ambiguous(f"{letter} also stands there as a capital")


def letter_jumble(entry: Entry) -> Fault | None:
    """Find words with two solutions in a text that has lost its short words, so its context."""
    shortest, _ = entry["metadata"]["difficulty"]["word_len"]
    if shortest < 2:
        return None
    common = (
        "act cat|acts cast|agree eager|aside ideas|asleep please|begin being|below elbow|care "
        "race|continued unnoticed|course source|credit direct|dear read|den end|early "
        "layer|earnest eastern|earth heart|evil live|except expect|felt left|file life|form "
        "from|general enlarge|hate heat|horses shores|how who|impression permission|item "
        "time|items times|its sit|last salt|least steal|license silence|listen silent|mean "
        "name|means names|miles smile|net ten|night thing|nights things|no on|note tone|now "
        "own won|optics topics|part trap|quiet quite|raw war|saw was|shut thus|sorted "
        "stored|state taste|sure user|there three|tired tried|credited directed|theater theatre"
    )
    groups = [group.split() for group in common.split("|")]
    for word in entry["answer"].split():
        lower = word.lower()
        solutions = []
        for group in groups:
            if lower in group:
                solutions += [solution for solution in group if solution != lower]
        fitting = [
            solution
            for solution in solutions
            if word.islower() or solution[0] == word[0].lower()
        ]
        if fitting:
            return ambiguous(f"{word} could also be {fitting[0]}")
    return None


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


def manipulate_matrix(entry: Entry) -> Fault | None:
    """Find mirrors without an axis and rotations without a direction."""
    usual = _after(entry["metadata"], turn=1, swap=True)
    if _after(entry["metadata"], turn=1, swap=False) != usual:
        unclear = "what mirroring horizontally exchanges"
    elif _after(entry["metadata"], turn=-1, swap=True) != usual:
        unclear = "in which direction to rotate"
    else:
        return None
    return ambiguous(f"the text does not say {unclear}")


def number_filtering(entry: Entry) -> Fault | None:
    """Find a number in the label that is not in the list, which has it in another form."""
    answer_numbers, question_numbers = (
        re.findall("'([^']*)'", entry[key]) for key in ("answer", "question")
    )
    added = Counter(answer_numbers) - Counter(question_numbers)
    if not added:
        return None
    return false_label(
        f"{next(iter(added))} stands for an equal number of the list in another form"
    )


def pool_matrix(entry: Entry) -> Fault | None:
    """Find regions that the edge cuts off, which many implementations drop."""
    metadata = entry["metadata"]
    rows = metadata["rows"]
    columns = metadata["cols"]
    size = metadata["pool_size"]
    if (rows % size == 0 and columns % size == 0) or size > min(rows, columns):
        return None
    return ambiguous(
        "the text does not say what happens to regions that the edge cuts off"
    )


def sentence_reordering(entry: Entry) -> Fault | None:
    """Find repeated words, which the library puts in a row, and parts of sentences.

    The library ends a sentence at each full stop, also at that of a title, and leaves the closing
    quotation mark to the next one.
    """
    words = entry["answer"].split()
    if len(set(words)) < len(words):
        repeated = next(word for word in words if words.count(word) > 1)
        return false_label(f"{repeated!r} occurs several times, all in a row")
    if re.search(r"(?:^|\W)(?:Mrs?|Dr|www)\.$|(?:^| )[\"'](?: |$)", entry["answer"]):
        return ambiguous("the words are not those of one sentence")
    return None


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


def string_manipulation(entry: Entry) -> Fault | None:
    """Compare with the other middle of an even length, where the library takes the right one."""
    rules = [
        rule for rule in entry["question"].splitlines() if ". If the string" in rule
    ]
    if not entry["answer"]:
        return ab(entry)
    if not any("length is greater than 15" in rule for rule in rules):
        return None
    form = r"\d+\. If the string (prefix is|starts with|suffix is|ends with|contains) '([abc]+)'"
    edits = [re.match(form, rule) or rule for rule in rules]
    text = entry["metadata"]["string"]
    states = set[str]()
    while len(states) < 2000:
        states.add(text)
        following = next(
            (new for edit in edits if (new := _edited(edit, text)) is not None), text
        )
        if following in states:
            break
        text = following
    if text == entry["answer"]:
        return None
    return ambiguous("an even number of characters has two middles")


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
