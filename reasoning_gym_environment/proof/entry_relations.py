"""What holds between question, answer and metadata in every entry of a task.

Metadata often repeats the answer, or the numbers that the question has. What holds in all of a few
fresh entries, of the default configuration and of three levels, is expected of an entry from
outside.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..errors import GenerationError
from ..problems.seeds import training_seed
from ..records import Ladder, Recipe
from ..sandbox.pool import TaskPool
from ..util.values import shorten

DEFAULT_SAMPLES = 8
LEVEL_SAMPLES = 4
"""Fresh entries of the default configuration, and of each of three levels."""

FEWEST_SAMPLES = 8
"""With fewer entries, nothing is concluded."""

FEWEST_VALUES = 3
"""A field with fewer different values may agree by chance."""

FEWEST_LETTERS = 2
"""Fewer letters and digits, on average, stand in many questions by chance."""

SHORTEST_FRAME = 20
"""Characters; a shorter beginning or end may be common to all questions by chance."""

NOT_COMPARED = frozenset({"source_dataset", "source_index", "difficulty"})


def _as_grid(value: Any) -> str:
    return "\n".join(" ".join(map(str, row)) for row in value)


WRITINGS: Mapping[str, Callable[[Any], str]] = {
    "text": str,
    "commas": lambda value: ", ".join(map(str, value)),
    "spaces": lambda value: " ".join(map(str, value)),
    "grid": _as_grid,
}
"""How an answer may write a field of the metadata."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Relations:
    """What holds in every entry of a task.

    Attributes:
        answer_is: fields of the metadata, with how the answer writes them.
        question_has: fields whose every value stands in the question.
        beginning, end: of every question.
    """

    answer_is: Sequence[tuple[str, str]] = ()
    question_has: Sequence[str] = ()
    beginning: str = ""
    end: str = ""

    def wrong_answer(self, entry: Mapping[str, Any]) -> str:
        """Return what an entry's answer contradicts; empty if nothing."""
        for name, writing in self.answer_is:
            expected = _written(entry["metadata"].get(name), writing)
            if expected is not None and not _are_equal(expected, entry["answer"]):
                return (
                    f"its answer {shorten(entry['answer'])} is not metadata.{name}, "
                    f"{shorten(expected)}"
                )
        return ""

    def changed_question(self, entry: Mapping[str, Any]) -> str:
        """Return what an entry's question lacks; empty if nothing."""
        question = entry["question"]
        for name in self.question_has:
            for value in _values(entry["metadata"].get(name)):
                if not _stands_in(value, question):
                    return f"its question lacks {shorten(value)}, which metadata.{name} has"
        if not question.startswith(self.beginning):
            return f"its question does not begin with {shorten(self.beginning)}"
        if not question.endswith(self.end):
            return f"its question does not end with {shorten(self.end)}"
        return ""

    def confirms(self, entry: Mapping[str, Any]) -> bool:
        """Return whether the metadata has the answer."""
        return any(
            _written(entry["metadata"].get(name), writing) == entry["answer"]
            for name, writing in self.answer_is
        )


async def learn_relations(pool: TaskPool, task: str, ladder: Ladder) -> Relations:
    """Return what holds in fresh entries of a task; nothing if too few can be made."""
    configurations: list[tuple[int | None, Mapping[str, Any], int]] = [
        (None, {}, DEFAULT_SAMPLES)
    ]
    for level in sorted({0, len(ladder) // 2, len(ladder) - 1}):
        configurations.append((level, ladder[level], LEVEL_SAMPLES))
    entries = []
    for at, parameters, count in configurations:
        for index in range(count):
            recipe = Recipe(
                task=task,
                seed=training_seed(0, "relations", task, index),
                level=at,
                parameters=parameters,
            )
            try:
                content = (await pool.inspect(recipe)).content
            except GenerationError:
                break  # a level may take long
            # Other values than plain ones have no literal.
            with suppress(ValueError, SyntaxError):
                entries.append(ast.literal_eval(content))
    return relations_of(entries)


def relations_of(entries: Sequence[Mapping[str, Any]]) -> Relations:
    """Return what holds in all of some entries."""
    if len(entries) < FEWEST_SAMPLES:
        return Relations()
    names = set.intersection(*(set(entry["metadata"]) for entry in entries))
    answer_is = []
    question_has = []
    for name in sorted(names - NOT_COMPARED):
        values = [entry["metadata"][name] for entry in entries]
        if len(set(map(repr, values))) < FEWEST_VALUES:
            continue
        pairs = [*zip(entries, values, strict=True)]
        for writing in WRITINGS:
            if all(_is_written(e["answer"], value, writing) for e, value in pairs):
                answer_is.append((name, writing))
                break
        letters = sum(len(text) for value in values for text in _values(value))
        telling = letters >= FEWEST_LETTERS * len(values)
        if telling and all(_all_stand_in(value, e["question"]) for e, value in pairs):
            question_has.append(name)
    questions = [entry["question"] for entry in entries]
    return Relations(
        answer_is=answer_is,
        question_has=question_has,
        beginning=_common_beginning(questions),
        end=_common_beginning([text[::-1] for text in questions])[::-1],
    )


def _are_equal(answer: str, written: str) -> bool:
    """Return whether texts are equal, or the same number: 12.0 is 12."""
    if answer == written:
        return True
    try:
        return float(answer) == float(written)
    except ValueError:
        return False


def _common_beginning(texts: Sequence[str]) -> str:
    """Return the words with which all texts begin; empty if they are few."""
    smallest = min(texts)
    largest = max(texts)  # what these two share, all between them share
    pairs = zip(smallest, largest, strict=False)
    equal_letters = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    common = "".join(letter for letter, _ in equal_letters)
    # A number may be a parameter's.
    whole_words = re.sub(r"(\S*\d.*|\S*)\Z", "", common, flags=re.DOTALL)
    return whole_words if len(whole_words) >= SHORTEST_FRAME else ""


def _is_written(answer: Any, value: Any, writing: str) -> bool:
    return isinstance(answer, str) and _written(value, writing) == answer


def _written(value: Any, writing: str) -> str | None:
    """Return a value as an answer writes it; None if it can't."""
    if value is None or (writing != "text" and isinstance(value, str)):
        return None
    try:
        return WRITINGS[writing](value)
    except TypeError:
        return None


def _values(value: Any) -> list[str]:
    """Return a number, a text or those in a list as texts; nothing else is looked for."""
    if isinstance(value, list | tuple):
        texts = [_values(inner) for inner in value]
        flat = all(len(text) == 1 for text in texts)
        return [text[0] for text in texts] if flat else []
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return [str(value)] if is_plain and str(value) else []


def _all_stand_in(value: Any, question: str) -> bool:
    values = _values(value)
    return bool(values) and all(_stands_in(text, question) for text in values)


def _stands_in(text: str, question: str) -> bool:
    """Return whether a text stands in a question, and not as a part of a word or number."""
    start = question.find(text)
    while start >= 0:
        before = question[start - 1 : start]
        after = question[start + len(text) : start + len(text) + 1]
        if not (before.isalnum() and text[0].isalnum()) and not (
            after.isalnum() and text[-1].isalnum()
        ):
            return True
        start = question.find(text, start + 1)
    return False
