"""Answers without reasoning: copies from the question, and trivial calculations with it.

A strategy is deterministic and has the same label for all questions. A question that lacks what the
strategy copies gets no answer from it.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

Grid = list[list[str]]

Answers = Iterator[tuple[str, str]]
"""Labels and answers."""


def strategies(question: str) -> dict[str, str]:
    """Return some hundred answers to a question by the labels of their strategies.

    Example:
        >>> answers = strategies("Find the LCM of these numbers: 4, 6")
        >>> answers["the product of the numbers"], answers["the last number"]
        ('24', '6')
    """
    places = _places(question)
    readers = (_copies, _numbers, _grids, _lists)
    read = {
        text: [pair for reader in readers for pair in reader(text)]
        for text in {*places.values()}
    }
    answers = {
        f"{k}{where}": text
        for where, place in places.items()
        for k, text in read[place]
    }
    answers |= dict(_puzzles(question))
    bare = {label: text.strip() for label, text in answers.items()}
    # No right answer to a default question is longer.
    return {k: text for k, text in bare.items() if text and len(text) <= 4000}


def _places(question: str) -> dict[str, str]:
    """Return the places in a question to copy from, by the end of their label."""
    paragraphs = [part for part in re.split(r"\n\s*\n", question) if part.strip()]
    lines = _lines(question)
    colon = question.rpartition(": ")[2]
    return {
        "": question,
        " of the last line": lines[-1] if lines else "",
        " of the first line": lines[0] if lines else "",
        " of the last paragraph": paragraphs[-1] if paragraphs else "",
        " after the last colon": re.split(r"\. [A-Z]|\.?\n", colon)[0],
        " after the last line that ends in a colon": question.rpartition(":\n")[2],
    }


def _ends(kind: str, found: Sequence[str]) -> Answers:
    """Return the first and last pieces of a kind, the longest, shortest, most frequent, rarest."""
    for n, piece in enumerate(found[:6], start=1):
        yield f"{kind} {n}", piece
    for n, piece in enumerate(reversed(found[-6:]), start=1):
        yield ("the last " + kind if n == 1 else f"{kind} {n} from the end"), piece
    if found:
        counted = Counter(found).most_common()
        yield f"the longest {kind}", max(found, key=len)
        yield f"the shortest {kind}", min(found, key=len)
        yield f"the most frequent {kind}", counted[0][0]
        yield f"the rarest {kind}", counted[-1][0]
        yield f"the number of {kind}s", str(len(found))


def _copies(text: str) -> Answers:
    """Copy the text, its lines, words, quotations, examples and lists."""
    yield "the text", text
    yield "the text in capitals", text.upper()
    yield "the text in small letters", text.lower()
    yield "the text backwards", text[::-1]
    yield "the words backwards", " ".join(reversed(text.split()))
    yield "the words sorted", " ".join(sorted(text.split()))
    all_words = re.findall(r"[^\W\d_]+", text)
    yield from _ends("line", _lines(text))
    yield from _ends("word", all_words)
    yield from _ends("name", [word for word in all_words if word.istitle()])
    yield from _ends("quotation", _quotations(text))
    example = r"(?:e\.g\.,?|ex\.?[,:]|[Ee]xample:?|like:?)[ \n]+(.+?)[])\".]*$"
    yield from _ends("example", re.findall(example, text, re.M))
    yield from _ends("bracket", _brackets(text))
    yield from _ends("line end", [line.split()[-1] for line in _lines(text)])
    if all_words:
        yield "the last word backwards", all_words[-1][::-1]


def _numbers(text: str) -> Answers:
    """Copy the numbers, and calculate with them."""
    found = re.findall(
        r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d{1,2})?(?![\w])", text
    )
    yield from _ends("number", found)
    if not 1 <= len(found) <= 60:
        return
    values = [Fraction(number.replace(",", "")) for number in found]
    ranked = sorted(range(len(values)), key=values.__getitem__)
    yield "the smallest number", found[ranked[0]]
    yield "the largest number", found[ranked[-1]]
    first, second, last, before = (
        values[0],
        values[1 % len(values)],
        values[-1],
        values[-2:][0],
    )
    results = {
        "the sum of the numbers": sum(values, Fraction()),
        "the mean of the numbers": statistics.mean(values),
        "the median of the numbers": statistics.median(values),
        "the range of the numbers": max(values) - min(values),
        "the first number less the others": 2 * first - sum(values, Fraction()),
        "the sum of the first two numbers": first + second,
        "the first number less the second": first - second,
        "the second number less the first": second - first,
        "the product of the first two numbers": first * second,
        "the sum of the last two numbers": last + before,
        "the last number less the one before": last - before,
        "the product of the last two numbers": last * before,
        "the last number and the step to it": 2 * last - before,
        "the last number doubled": 2 * last,
        "the last number and one": last + 1,
        "the last number less one": last - 1,
        "half the last number": last / 2,
    }
    if len(values) <= 12:
        results["the product of the numbers"] = math.prod(values, start=Fraction(1))
    quotients = {"the first": (first, second), "the last": (before, last)}
    for which, (above, below) in quotients.items():
        if below:
            results[f"{which} number over its neighbour"] = above / below
        if above:
            results[f"{which} number under its neighbour"] = below / above
    for label, value in results.items():
        yield label, _plain(value)


def _plain(value: Fraction) -> str:
    """Return a number as text, or an empty text if it is too large."""
    try:
        return (
            str(value.numerator)
            if value.denominator == 1
            else format(float(value), ".10g")
        )
    except OverflowError:
        return ""


def _grids(text: str) -> Answers:
    """Copy the grids, and turn the last one."""
    found = _find_grids(text)
    yield from _ends("grid", [_grid_text(grid) for grid in found])
    if not found:
        return
    grid = found[-1]
    size = min(map(len, grid))
    turned = [
        list(column) for column in zip(*(row[:size] for row in grid), strict=True)
    ]
    cells = [cell for row in grid for cell in row]
    shapes = {
        "upside down": grid[::-1],
        "mirrored": [row[::-1] for row in grid],
        "backwards": [row[::-1] for row in grid[::-1]],
        "transposed": turned,
        "turned right": [row[::-1] for row in turned],
        "turned left": turned[::-1],
        "in one row": [cells],
        "as its first row": grid[:1],
        "as its last row": grid[-1:],
        "without its first row": grid[1:],
        "without its last row": grid[:-1],
        "with zeros": [["0"] * len(row) for row in grid],
        "with ones": [["1"] * len(row) for row in grid],
        "with its blanks filled": [_filled(row, size=len(grid)) for row in grid],
        "with its blanks as zeros": [
            ["0" if c in "_?" else c for c in row] for row in grid
        ],
    }
    for label, rows in shapes.items():
        yield f"the last grid {label}", _grid_text(rows)
    for cell, count in Counter(cells).items():
        yield f"how often {cell} is in the last grid", str(count)


def _filled(row: Sequence[str], *, size: int) -> list[str]:
    missing = [str(n) for n in range(1, size + 1) if str(n) not in row]
    return [missing.pop(0) if cell in "_0" and missing else cell for cell in row]


def _lists(text: str) -> Answers:
    """Reorder what is listed by commas or in brackets, and write it in other forms."""
    runs = {
        "list": [
            re.split(r", *", run)
            for run in re.findall(r"[\w.+-]+(?:, *[\w.+-]+)+", text)
        ]
    }
    runs["bracket"] = [_split_bracket(bracket) for bracket in _brackets(text)]
    for kind, found in runs.items():
        if not found:
            continue
        for which, chosen in (("longest", max(found, key=len)), ("last", found[-1])):
            for label, answer in _orders(chosen):
                yield f"the {which} {kind} {label}", answer


def _orders(listed: Sequence[str]) -> Answers:
    orders = {
        "as it is": list(listed),
        "backwards": list(listed[::-1]),
        "sorted": sorted(listed),
        "sorted backwards": sorted(listed, reverse=True),
    }
    for label, order in orders.items():
        yield f"{label}, by commas", ", ".join(order)
        yield f"{label}, as texts", str(order)
    for sign in ("", " ", "+", "-", "*", "/", ",", " \N{MULTIPLICATION SIGN} "):
        yield f"joined by {sign!r}", sign.join(listed)
    yield "as a palindrome", "".join(listed[::2]) + "".join(reversed(listed[1::2]))
    yield "each by itself", json.dumps([[one] for one in listed])
    yield "in one group", json.dumps([listed])


def _puzzles(question: str) -> Answers:
    """Answer questions with a form of their own: choices, premises, maps, ladders, moves."""
    for quotation in _quotations(question)[-1:]:
        for label, picks in (
            ("first", (0,)),
            ("second", (1,)),
            ("first and second", (0, 1)),
        ):
            yield (
                f"the last quotation with the {label} choices",
                _chosen(quotation, picks),
            )
    premises = re.findall(r"^\W{0,4}\d+[.:] *(.+)$", question, re.M)
    names = sorted(set(re.findall(r"\b[P-Z]\b", " ".join(premises))))
    bracketed = [f"({one})" for one in premises]
    for sign, word in ((" ∧ ", "and"), (" \N{LOGICAL OR} ", "or")):
        yield f"the premises by {word}", sign.join(bracketed)
        yield f"the variables by {word}", sign.join(names)
        yield f"two variables by {word}", sign.join(names[:2])
        first = [*bracketed[:1], *names[-1:]]
        yield f"the first premise and a variable by {word}", sign.join(first)
    brackets = [_split_bracket(bracket) for bracket in _brackets(question)]
    if len(brackets) > 1:
        keys, values = brackets[0], [int(v) if v.isdigit() else v for v in brackets[-1]]
        in_turn = {key: values[n % len(values)] for n, key in enumerate(keys)}
        yield "the last bracket mapped onto the first in turn", json.dumps(in_turn)
        yield (
            "the last bracket's first for all",
            json.dumps(dict.fromkeys(keys, values[0])),
        )
    ends = [q for q in _quotations(question) if q.isupper()][:2]
    if len(ends) == 2 and len(ends[0]) == len(ends[1]):
        steps = [ends[1][:n] + ends[0][n:] for n in range(len(ends[0]) + 1)]
        yield (
            "the first word changed into the second in order",
            ",".join(dict.fromkeys(steps)),
        )
    yield from _moves(question)


def _chosen(text: str, picks: Sequence[int]) -> str:
    """Replace each pair of choices with a slash between by one of them, the picks in turn."""
    in_turn = itertools.cycle(picks)
    return re.sub(r"(\w+)/(\w+)", lambda match: match[1 + next(in_turn)], text)


def _moves(question: str) -> Answers:
    """Return random moves, the same for the same question."""
    rng = random.Random(0)
    yield "random moves in four directions", "".join(rng.choices("LURD", k=700))
    directions = ("left", "right", "up", "down")
    yield "a few random directions", " ".join(rng.choices(directions, k=4))
    yield "random turns of a cube", " ".join(rng.choices("FBLRUD", k=20))
    letters = sorted(set(re.findall(r"[A-Z]", question.rpartition(":\n")[2])))
    if letters:
        moves = [f"{rng.choice(letters)}{rng.choice('+-')}1" for _ in range(700)]
        yield "random moves of what is on the board", " ".join(moves)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _quotations(text: str) -> list[str]:
    quoted = r"\"([^\"\n]+)\"|`([^`\n]+)`|'([^'\n]+)'"
    return ["".join(parts) for parts in re.findall(quoted, text)]


def _find_grids(text: str) -> list[Grid]:
    """Return the blocks of lines that consist of two or more short cells."""
    found: list[Grid] = [[]]
    for line in text.splitlines():
        row = line.split()
        if len(row) > 1 and all(len(cell) <= 3 for cell in row):
            found[-1].append(row)
        elif found[-1]:
            found.append([])
    return [grid for grid in found if grid]


def _brackets(text: str) -> list[str]:
    """Return the outermost square brackets with their contents, such as `[1, [2]]`."""
    found = []
    depth = begin = 0
    for place, character in enumerate(text):
        if character == "[":
            begin = place if depth == 0 else begin
            depth += 1
        elif character == "]" and depth:
            depth -= 1
            if depth == 0:
                found.append(text[begin : place + 1])
    return found


def _split_bracket(bracket: str) -> list[str]:
    """Split the contents of a bracket at its commas, without quotation marks."""
    return [part.strip(" []'\"\n") for part in bracket.split(",")]


def _grid_text(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(" ".join(row) for row in rows)


OWN_WORK: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "basic_arithmetic": ("the sum of", "the first number less", "the product of"),
        "chain_sum": ("the sum of", "the first number less"),
        "decimal_chain_sum": ("the sum of", "the first number less"),
        "palindrome_generation": (
            "the longest list as a palindrome",
            "the last list as a palindrome",
        ),
        "products": ("the product of",),
        "spell_backward": (
            "the last word backwards",
            "the text backwards",
            "the words backwards",
        ),
        "word_sequence_reversal": (
            "the longest list backwards",
            "the last list backwards",
        ),
        "word_sorting": (
            "the longest list sorted",
            "the last list sorted",
            "the words sorted",
        ),
    }
)
"""Prefixes of the labels of strategies that do what the task itself asks, by task."""
