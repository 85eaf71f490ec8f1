"""What requests ask to score: their JSON, and the targets and completions in it."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import HTTPException
from pydantic_core import from_json

from ..records import Problem, Recipe
from ..scoring.channels import opened_thought
from ..tasks.catalogue import restore_json_entry
from ..tasks.recipes import read_recipe, require_parameters_of_level
from ..util.values import shorten
from ._messages import (
    MAX_CHARACTERS,
    MAX_VALUES,
    REQUIRED_OF_ENTRY,
    NemoRequest,
    OpenRlhfRequest,
)


def read_json(text: bytes | str, name: str) -> Any:
    """Return the value of JSON text with at most 200 levels, MAX_VALUES and finite numbers.

    Raises HTTPException with the text's name for other text.
    """
    raw = text.encode() if isinstance(text, str) else text
    plain = np.frombuffer(raw.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    # Commas and brackets in strings do not count.
    outside = plain[~np.logical_xor.accumulate(plain == ord('"'))].tobytes()
    values = sum(map(outside.count, (b",", b"[", b"{")))
    if values > MAX_VALUES:
        raise HTTPException(
            413,
            f"{name} has {values} commas and brackets, more than {MAX_VALUES}: send fewer "
            "completions in one request",
        )
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise HTTPException(400, f"{name} is not valid JSON: {error}") from None
    try:
        json.dumps(value, allow_nan=False)  # 1e999 parses as infinity
    except ValueError:
        raise HTTPException(400, f"{name} has a number that is too large") from None
    return value


def digest(*values: Any) -> str:
    """Return a key that equal JSON values share."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The problem of completions to score.

    Attributes:
        recipe: generates the problem; of an entry, it only names the task.
        question: of the row, which must equal the problem's; None if the row has none.
        entry: of reasoning-gym, which came as JSON and is the problem; None for a recipe.
    """

    recipe: Recipe
    question: str | None = None
    entry: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """A key that equal targets share."""
        return digest(self.recipe.identity(), self.question, self.entry)

    def entry_problem(self) -> Problem:
        """Return the entry as a problem for worker processes."""
        assert self.entry is not None
        return Problem(
            recipe=self.recipe,
            question=self.entry["question"],
            oracle=self.entry["answer"],
            entry=pickle.dumps(self.entry),
        )


def recipe_target(value: Any, *, question: str | None = None) -> Target:
    """Return the target of a recipe, given as JSON or its text; HTTPException if it is invalid."""
    data = read_json(value, "recipe") if isinstance(value, str) else value
    try:
        recipe = read_recipe(data)
        require_parameters_of_level(recipe)
    except ValueError as error:
        raise HTTPException(422, f"invalid recipe: {error}") from None
    return Target(recipe=recipe, question=question)


def entry_target(value: Any) -> Target:
    """Return the target of an entry; HTTPException if it is invalid."""
    if not isinstance(value, dict) or not value.keys() >= set(REQUIRED_OF_ENTRY):
        raise HTTPException(
            422, f"entry must have question, answer and metadata, got {shorten(value)}"
        )
    question = value["question"]
    answer = value["answer"]
    metadata = value["metadata"]
    if not isinstance(question, str):
        raise HTTPException(
            422, f"entry: question must be a string, got {shorten(question)}"
        )
    if not isinstance(answer, str | None):
        raise HTTPException(
            422, f"entry: answer must be a string or null, got {shorten(answer)}"
        )
    if not isinstance(metadata, dict):
        raise HTTPException(
            422, f"entry: metadata must be an object, got {shorten(metadata)}"
        )
    try:
        entry = restore_json_entry(value)
    except ValueError as error:
        raise HTTPException(422, f"entry: {error}") from None
    return Target(recipe=Recipe(task=metadata["source_dataset"], seed=0), entry=entry)


def label_target(label: Any, name: str) -> Target:
    """Return the target of a recipe or an entry, as JSON or its text; HTTPException if neither."""
    data = read_json(label, name) if isinstance(label, str) else label
    if isinstance(data, dict) and "metadata" in data:
        return entry_target(data)
    if isinstance(data, dict) and "task" in data:
        return recipe_target(data)
    raise HTTPException(
        422, f"{name} must be a recipe or an entry, as JSON, got {shorten(data)}"
    )


def nemo_target(request: NemoRequest) -> Target:
    """Return the target of a NeMo Gym row: its recipe, else the entry that it is."""
    if request.recipe is not None:
        return recipe_target(request.recipe, question=request.question)
    if request.metadata is None:
        raise HTTPException(
            422,
            "the row needs a recipe, or reasoning-gym's question, answer and metadata",
        )
    return entry_target(
        {
            "question": request.question,
            "answer": request.answer,
            "metadata": request.metadata,
        }
    )


_NO_REPLY = (
    "reasoning",
    "reasoning_text",
    "summary_text",
    "thinking",
    "refusal",
    "system",
    "developer",
    "user",
    "tool",
    "function",
)
"""Types and roles in a response that are known to hold no reply."""


def _invalid_output(what: str, value: Any) -> HTTPException:
    return HTTPException(422, f"response.output: {what}, got {shorten(value)}")


def nemo_text(output: list[dict[str, Any]]) -> str:
    """Return the text of the assistant's messages in a response, without reasoning.

    Raises HTTPException for a response with texts of which none is known to be a reply: one unknown
    word would make every response an empty one.
    """
    texts: list[str] = []
    unknown: list[Any] = []
    for message in output:
        kind = message.get("type", "message")
        role = message.get("role", "assistant")
        if kind == "message" and role == "assistant":
            _read_parts(message.get("content") or "", texts, unknown)
        elif message.get("content") and kind not in _NO_REPLY and role not in _NO_REPLY:
            unknown.append({"type": kind, "role": role})
    if not texts and unknown:
        raise _invalid_output(
            "it must have an output_text of the assistant", unknown[0]
        )
    text = "".join(texts)
    if len(text) > MAX_CHARACTERS:
        raise _invalid_output(
            f"String should have at most {MAX_CHARACTERS} characters", text
        )
    return text


def _read_parts(content: Any, texts: list[str], unknown: list[Any]) -> None:
    """Add the texts of a message, and the types of its parts that are not known."""
    if isinstance(content, str):
        texts.append(content)
        return
    if not isinstance(content, list):
        raise _invalid_output("a message's content must be a string or a list", content)
    for part in content:
        if not isinstance(part, dict):
            continue
        kind = part.get("type")
        text = part.get("text")
        if kind in ("output_text", "text"):
            if not isinstance(text, str):
                raise _invalid_output("an output_text's text must be a string", text)
            texts.append(text)
        elif text and kind not in _NO_REPLY:
            unknown.append({"type": kind})


def openrlhf_pairs(request: OpenRlhfRequest) -> list[tuple[Target, str]]:
    """Return each label's target with the completion, which is the query without its prompt."""
    count = len(request.query)
    for name, values in (("prompts", request.prompts), ("labels", request.labels)):
        if len(values) != count:
            raise HTTPException(
                422,
                f"{name} must have one value per query ({count}), got {len(values)}",
            )
    pairs = []
    for index, query in enumerate(request.query):
        prompt = request.prompts[index]
        _, prompt_found, completion = (
            query.partition(prompt) if prompt else ("", "found", query)
        )
        if not prompt_found:
            raise HTTPException(
                422,
                f"query.{index} does not contain prompts.{index}, {shorten(prompt)}: cannot tell "
                "the completion from the prompt",
            )
        target = label_target(request.labels[index], f"labels.{index}")
        pairs.append((target, opened_thought(prompt) + completion))
    return pairs
