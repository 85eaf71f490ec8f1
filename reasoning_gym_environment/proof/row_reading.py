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

ANSWER_KEYS = ("answer", "oracle", "ground_truth", "expected_answer")
"""Where frameworks keep the right answer, as text; a ground truth may be a recipe instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowContent:
    """What a row says.

    Attributes:
        recipe: None if it has none.
        entry: of reasoning-gym, with its metadata as an object; None if it has none.
        tasks: names of its task besides those of recipe and entry.
        levels: beside the name of its recipe's task.
        questions: its question, and the last message of the user.
        answers: its right answers.
        demonstrations: completions that it shows.
        origin: the recipe of an item of the library's own data set, as far as the row tells.
    """

    recipe: Recipe | None
    entry: Mapping[str, Any] | None
    tasks: Sequence[str] = ()
    levels: Sequence[int] = ()
    questions: Sequence[str] = ()
    answers: Sequence[str] = ()
    demonstrations: Sequence[str] = ()
    origin: Recipe | None = None


def read_row(value: Any) -> RowContent:
    """Read a row of any framework; raise ValueError for an invalid recipe."""
    records = list(_objects(value))
    recipe = None
    entry = None
    for record in records:
        metadata = _parsed(record.get("metadata"))
        if recipe is None and {"task", "seed"} <= record.keys() <= RECIPE_KEYS:
            recipe = read_recipe(record)
        is_entry = isinstance(metadata, dict) and isinstance(
            record.get("question"), str
        )
        if entry is None and is_entry:
            entry = {**record, "metadata": metadata}
    outer_records = list(_objects(value, inside_metadata=False))
    messages = [list_ for record in outer_records for list_ in _conversations(record)]
    questions = [
        text for record in outer_records for text in _texts(record, ("question",))
    ]
    demonstrations = []
    for conversation in messages:
        of_user = [text for role, text in conversation if role == "user"]
        questions += of_user[-1:]
        role, last = conversation[-1]
        if role == "assistant":
            demonstrations.append(last)
    return RowContent(
        recipe=recipe,
        entry=entry,
        tasks=list(_names(outer_records, recipe)),
        levels=list(_levels(outer_records, recipe)),
        questions=[replace_surrogates(text)[0] for text in questions],
        answers=list(_answers(outer_records)),
        demonstrations=demonstrations,
        origin=None if entry is None else _origin(records, entry["metadata"]),
    )


RECIPE_KEYS = {field.name for field in fields(Recipe)}


def _names(
    records: Sequence[Mapping[str, Any]], recipe: Recipe | None
) -> Iterator[str]:
    """Yield the names that a row gives to its task."""
    for record in records:
        if {"task", "seed"} <= record.keys() <= RECIPE_KEYS:
            continue  # the recipe itself
        yield from _texts(record, ("task", "source_dataset"))
        for source in _texts(record, ("data_source",)):
            library, _, task = source.partition("/")
            if library.replace("_", "-") == "reasoning-gym" and task:
                yield task
        metadata = _parsed(record.get("metadata"))
        if recipe is not None and isinstance(metadata, dict):
            yield from _texts(metadata, ("source_dataset",))


def _levels(
    records: Sequence[Mapping[str, Any]], recipe: Recipe | None
) -> Iterator[int]:
    """Yield the levels that a row gives beside the name of its recipe's task."""
    for record in records:
        level = record.get("level")
        named = recipe is not None and record.get("task") == recipe.task
        if named and "seed" not in record and isinstance(level, int):
            yield level


def _answers(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the distinct answers that a row calls right."""
    seen = set()
    for record in records:
        for key in ANSWER_KEYS:
            answer = record.get(key)
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


def _texts(record: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    """Yield the texts below keys."""
    for key in keys:
        text = record.get(key)
        if isinstance(text, str):
            yield text


def _conversations(record: Mapping[str, Any]) -> Iterator[list[tuple[str, str]]]:
    """Yield the conversations of an object, each as roles and texts."""
    for key in ("prompt", "messages", "input"):
        messages = _parsed(record.get(key))
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
    records: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]
) -> Recipe | None:
    """Return the recipe of an item of the library's data set; None unless the row has its seed."""
    index = metadata.get("source_index")
    seeds = [
        record["seed"] for record in records if isinstance(record.get("seed"), int)
    ]
    if not seeds or not isinstance(index, int):
        return None
    parameters: dict[str, Any] = {}
    for record in records:
        for key in ("config", "parameters"):
            named = _parsed(record.get(key))
            parameters |= named if isinstance(named, dict) else {}
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
