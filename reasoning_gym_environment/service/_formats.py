"""What to score in each framework's messages, and how to reply to it. Pure functions."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import HTTPException

from ..gym.asynchronous import Score
from ..records import Problem, Recipe
from ..tasks.catalogue import restore_json_entry
from ..tasks.recipes import read_recipe, shorten
from ._schemas import MAX_CHARACTERS, OpenRlhfRequest, VerifyRequest, read_json

_ENTRY_FIELDS = {"question", "answer", "metadata"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeTarget:
    """A recipe, whose problem is generated here.

    Attributes:
        question: of the row, which must equal the problem's; None if the row has none.
    """

    recipe: Recipe
    question: str | None = None

    @property
    def key(self) -> str:
        """A key that equal targets share."""
        return _key([self.recipe.to_json(), self.question])

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.recipe.task


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryTarget:
    """An entry of reasoning-gym that came as JSON."""

    entry: Mapping[str, Any]

    @property
    def key(self) -> str:
        """A key that equal targets share."""
        return _key(self.entry)

    @property
    def task(self) -> str:
        """The name of the task."""
        task: str = self.entry["metadata"]["source_dataset"]
        return task

    def problem(self) -> Problem:
        """Return the entry as a problem for worker processes; its recipe does not generate it."""
        return Problem(
            recipe=Recipe(task=self.task, seed=0),
            question=self.entry["question"],
            oracle=self.entry["answer"],
            entry=pickle.dumps(self.entry),
        )


Target = RecipeTarget | EntryTarget


def _key(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def recipe_target(value: Any, *, question: str | None = None) -> RecipeTarget:
    """Return the target of a recipe, given as JSON or its text; HTTPException if it is invalid."""
    data = read_json(value, "recipe") if isinstance(value, str) else value
    try:
        return RecipeTarget(recipe=read_recipe(data), question=question)
    except ValueError as error:
        raise HTTPException(422, f"invalid recipe: {error}") from None


def entry_target(value: Any) -> EntryTarget:
    """Return the target of an entry; HTTPException if it is invalid."""
    if not isinstance(value, dict) or not value.keys() >= _ENTRY_FIELDS:
        raise HTTPException(
            422, f"entry must have question, answer and metadata, got {shorten(value)}"
        )
    question, answer, metadata = value["question"], value["answer"], value["metadata"]
    if not isinstance(question, str):
        raise HTTPException(422, f"entry: question must be a string, got {shorten(question)}")
    if not isinstance(answer, str | None):
        raise HTTPException(422, f"entry: answer must be a string or null, got {shorten(answer)}")
    if not isinstance(metadata, dict):
        raise HTTPException(422, f"entry: metadata must be an object, got {shorten(metadata)}")
    try:
        return EntryTarget(entry=restore_json_entry(value))
    except ValueError as error:
        raise HTTPException(422, f"entry: {error}") from None


def label_target(label: Any, name: str) -> Target:
    """Return the target of a label: a recipe or an entry, given as JSON or its text.

    Args:
        name: of the label, for the error.

    Raises:
        HTTPException: it is neither.
    """
    data = read_json(label, name) if isinstance(label, str) else label
    if isinstance(data, dict) and "metadata" in data:
        return entry_target(data)
    if isinstance(data, dict) and "task" in data:
        return recipe_target(data)
    raise HTTPException(422, f"{name} must be a recipe or an entry, as JSON, got {shorten(data)}")


def verify_target(request: VerifyRequest) -> Target:
    """Return the target of a NeMo Gym row: its recipe, else the entry that it is."""
    if request.recipe is not None:
        return recipe_target(request.recipe, question=request.question)
    if request.metadata is None:
        raise HTTPException(
            422, "the row needs a recipe, or reasoning-gym's question, answer and metadata"
        )
    return entry_target(
        {"question": request.question, "answer": request.answer, "metadata": request.metadata}
    )


def response_text(output: list[dict[str, Any]]) -> str:
    """Return the text of the assistant's messages in a response, without reasoning.

    Raises:
        HTTPException: a message's content is not text, or the text is too long.
    """
    text = "".join(
        _part_text(part)
        for message in output
        if message.get("type", "message") == "message"
        for part in _parts(message.get("content", ""))
        if isinstance(part, dict) and part.get("type") == "output_text"
    )
    if len(text) > MAX_CHARACTERS:
        raise HTTPException(
            422,
            f"response.output: String should have at most {MAX_CHARACTERS} characters, got "
            f"{shorten(text)}",
        )
    return text


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "output_text", "text": content}]
    if not isinstance(content, list):
        raise HTTPException(
            422,
            f"response.output: a message's content must be a string or a list, got "
            f"{shorten(content)}",
        )
    return content


def _part_text(part: dict[str, Any]) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        raise HTTPException(
            422,
            f"response.output: an output_text's text must be a string, got {shorten(text)}",
        )
    return text


def verify_reply(row: dict[str, Any], target: Target, score: Score) -> dict[str, Any]:
    """Return the row with its reward, as NeMo Gym reads it: 0 and masked if unscored."""
    reward = score.score or 0.0
    return {
        **row,
        "reward": reward,
        "score": reward,
        "status": score.status.value,
        "detail": score.detail,
        "mask_sample": score.score is None,
        "extracted_answer": score.answer,
        "task_name": target.task,
    }


def openrlhf_pairs(request: OpenRlhfRequest) -> list[tuple[Target, str]]:
    """Return each label's target with the completion, which is the query without its prompt.

    Raises:
        HTTPException: lists differ in length, a query lacks its prompt, or a label is invalid.
    """
    count = len(request.query)
    for name, values in (("prompts", request.prompts), ("labels", request.labels)):
        if len(values) != count:
            raise HTTPException(
                422, f"{name} must have one value per query ({count}), got {len(values)}"
            )
    pairs = []
    for index, query in enumerate(request.query):
        prompt = request.prompts[index]
        _, found, completion = query.partition(prompt) if prompt else ("", "found", query)
        if not found:
            raise HTTPException(
                422,
                f"query.{index} does not contain prompts.{index}, {shorten(prompt)}: cannot tell "
                "the completion from the prompt",
            )
        pairs.append((label_target(request.labels[index], f"labels.{index}"), completion))
    return pairs
