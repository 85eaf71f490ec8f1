"""What a request wants scored: a recipe of ours, or an entry of the library as a row holds it."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..records import Problem, Recipe
from ..tasks.datasets import restore_json_entry
from ..tasks.recipes import read_recipe, shorten
from .documents import read_json
from .refusals import Refusal

_ENTRY_FIELDS = {"question", "answer", "metadata"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeItem:
    """A recipe, whose problem is made here.

    Attributes:
        question: what the row says the problem asks; None where it says nothing.
    """

    recipe: Recipe
    question: str | None = None

    @property
    def key(self) -> str:
        """The same for the same item."""
        return _key([self.recipe.to_json(), self.question])


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryItem:
    """An entry of the library's own, which was JSON; `answer` is a text."""

    entry: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The same for the same item."""
        return _key(self.entry)

    def problem(self) -> Problem:
        """Give it to worker processes as a problem; no recipe makes it again."""
        return Problem(
            recipe=Recipe(task=self.entry["metadata"]["source_dataset"], seed=0),
            question=self.entry["question"],
            oracle=self.entry["answer"],
            entry=pickle.dumps(self.entry),
        )


Item = RecipeItem | EntryItem


def _key(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def recipe_item(value: Any, *, question: str | None = None) -> RecipeItem:
    """Read a recipe, JSON or its text; the Refusal says what is wrong with it."""
    data = read_json(value, "recipe") if isinstance(value, str) else value
    try:
        return RecipeItem(recipe=read_recipe(data), question=question)
    except ValueError as error:
        raise Refusal(422, f"invalid recipe: {error}") from None


def entry_item(value: Any) -> EntryItem:
    """Read an entry; the Refusal says what is wrong with it."""
    if not isinstance(value, dict) or not value.keys() >= _ENTRY_FIELDS:
        raise Refusal(
            422,
            f"entry: it has question, answer and metadata, which are not in {shorten(value)}",
        )
    question, answer, metadata = value["question"], value["answer"], value["metadata"]
    if not isinstance(question, str):
        raise Refusal(422, f"entry: question is {shorten(question)}, which is no text")
    if not isinstance(answer, str | None):
        raise Refusal(422, f"entry: answer is {shorten(answer)}, which is no text")
    if not isinstance(metadata, dict):
        raise Refusal(422, f"entry: metadata is {shorten(metadata)}, which is no object")
    try:
        return EntryItem(entry=restore_json_entry(value))
    except ValueError as error:
        raise Refusal(422, f"entry: {error}") from None


def label_item(label: Any, where: str) -> Item:
    """Read the label of a row: a recipe or an entry, JSON or its text.

    Args:
        where: names it in the message.

    Raises:
        Refusal: it is neither.
    """
    data = read_json(label, where) if isinstance(label, str) else label
    if isinstance(data, dict) and "metadata" in data:
        return entry_item(data)
    if isinstance(data, dict) and "task" in data:
        return recipe_item(data)
    raise Refusal(422, f"{where} is {shorten(data)}; it is a recipe, or an entry, as JSON")
