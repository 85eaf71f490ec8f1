"""What a row of any framework says: its problem, its questions and its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from ..records import Recipe
from ..tasks.recipes import read_recipe
from ..util.values import replace_surrogates

ANSWER_KEYS = ("answer", "oracle", "ground_truth")
"""Where frameworks keep the right answer, as text; a ground truth may be a recipe instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What a row says.

    Attributes:
        recipe: None if it has none.
        entry: of reasoning-gym, with its metadata as an object; None if it has none.
        tasks: names of its task besides those of recipe and entry.
        questions: its question, and the last message of the user.
        answers: its right answers.
        demonstrations: completions that it shows.
        origin: the recipe of an item of the library's own data set, as far as the row tells.
    """

    recipe: Recipe | None
    entry: Mapping[str, Any] | None
    tasks: Sequence[str] = ()
    questions: Sequence[str] = ()
    answers: Sequence[str] = ()
    demonstrations: Sequence[str] = ()
    origin: Recipe | None = None


def read_row(value: Any) -> Row:
    """Read a row of any framework; raise ValueError for an invalid recipe."""
    objects = list(_objects(value))
    recipe = None
    entry = None
    for each in objects:
        metadata = _parsed(each.get("metadata"))
        if recipe is None and {"task", "seed"} <= each.keys() <= RECIPE_KEYS:
            recipe = read_recipe(each)
        is_entry = isinstance(metadata, dict) and isinstance(each.get("question"), str)
        if entry is None and is_entry:
            entry = {**each, "metadata": metadata}
    outside = list(_objects(value, inside_metadata=False))
    messages = [list_ for each in outside for list_ in _conversations(each)]
    questions = [text for each in outside for text in _texts(each, ("question",))]
    demonstrations = []
    for conversation in messages:
        of_user = [text for role, text in conversation if role == "user"]
        questions += of_user[-1:]
        role, last = conversation[-1]
        if role == "assistant":
            demonstrations.append(last)
    return Row(
        recipe=recipe,
        entry=entry,
        tasks=list(_names(outside, recipe)),
        questions=[replace_surrogates(text)[0] for text in questions],
        answers=list(_answers(outside)),
        demonstrations=demonstrations,
        origin=None if entry is None else _origin(objects, entry["metadata"]),
    )


RECIPE_KEYS = {each.name for each in fields(Recipe)}


def _names(
    objects: Sequence[Mapping[str, Any]], recipe: Recipe | None
) -> Iterator[str]:
    """Yield the names that a row gives to its task."""
    for each in objects:
        if {"task", "seed"} <= each.keys() <= RECIPE_KEYS:
            continue  # the recipe itself
        yield from _texts(each, ("task", "source_dataset"))
        for source in _texts(each, ("data_source",)):
            library, _, task = source.partition("/")
            if library.replace("_", "-") == "reasoning-gym" and task:
                yield task
        metadata = _parsed(each.get("metadata"))
        if recipe is not None and isinstance(metadata, dict):
            yield from _texts(metadata, ("source_dataset",))


def _answers(objects: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the distinct answers that a row calls right."""
    seen = set()
    for each in objects:
        for key in ANSWER_KEYS:
            answer = each.get(key)
            if not isinstance(answer, str | int | float) or _is_label(answer):
                continue
            text, _ = replace_surrogates(str(answer))
            if text not in seen:
                seen.add(text)
                yield text


def _is_label(value: Any) -> bool:
    """Return whether a ground truth is a recipe or an entry instead of an answer."""
    parsed = _parsed(value)
    if not isinstance(parsed, dict):
        return False
    return {"task", "seed"} <= parsed.keys() or "metadata" in parsed


def _texts(each: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    """Yield the texts below keys."""
    for key in keys:
        text = each.get(key)
        if isinstance(text, str):
            yield text


def _conversations(each: Mapping[str, Any]) -> Iterator[list[tuple[str, str]]]:
    """Yield the conversations of an object, each as roles and texts."""
    for key in ("prompt", "messages", "input"):
        messages = _parsed(each.get(key))
        if not isinstance(messages, list):
            continue
        pairs = [
            (message["role"], message["content"])
            for message in messages
            if isinstance(message, dict)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
        ]
        if pairs:
            yield pairs


def _origin(
    objects: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]
) -> Recipe | None:
    """Return the recipe of an item of the library's data set; None unless the row has its seed."""
    index = metadata.get("source_index")
    seeds = [each["seed"] for each in objects if isinstance(each.get("seed"), int)]
    if not seeds or not isinstance(index, int):
        return None
    parameters: dict[str, Any] = {}
    for each in objects:
        for key in ("config", "parameters"):
            given = _parsed(each.get(key))
            parameters |= given if isinstance(given, dict) else {}
    for name in ("seed", "size"):
        parameters.pop(name, None)
    with suppress(ValueError):
        return read_recipe(
            {
                "task": metadata.get("source_dataset"),
                "seed": seeds[0] + index,
                "parameters": parameters,
            }
        )
    return None


def _objects(
    value: Any, depth: int = 4, *, inside_metadata: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield an object and those in it, also as JSON text: frameworks nest and encode them."""
    value = _parsed(value)
    if isinstance(value, dict) and depth:
        yield value
        for key, inner in value.items():
            if inside_metadata or key != "metadata":
                yield from _objects(
                    inner,
                    depth - 1,
                    inside_metadata=inside_metadata,
                )


def _parsed(value: Any) -> Any:
    """Parse the text of a JSON object or list; any other value stays."""
    with suppress(ValueError, RecursionError):
        if isinstance(value, str) and value.startswith(("{", "[")):
            return json.loads(value)
    return value
