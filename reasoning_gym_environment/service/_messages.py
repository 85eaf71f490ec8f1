"""Messages of the service: requests, replies and errors, and what a request asks to score.

They are one table. The OpenAPI document is made from the models.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import HTTPException
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import from_json

from ..problems.options import StreamOptions
from ..records import Problem, Recipe, Score, Status
from ..scoring.channels import opened_thought
from ..tasks.catalogue import restore_json_entry
from ..tasks.recipes import VERSION, read_recipe, require_parameters_of_level
from ..util.values import shorten
from .client import STREAM_NAME

MAX_COMPLETIONS = 256
"""Completions in one request."""

MAX_CHARACTERS = 2**19
"""Characters of one completion."""

MAX_VALUES = 2**19
"""Values in one JSON text, more than 4 MiB of token ids and logprobs have."""

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**31)]
Name = Annotated[str, Field(pattern=f"^{STREAM_NAME}$")]

_RECIPE = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "maxLength": 100},
        "seed": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
        "level": {"type": ["integer", "null"], "minimum": 0, "maximum": 999},
        "parameters": {"type": "object"},
        "library_version": {"type": ["string", "null"], "pattern": VERSION.pattern},
    },
    "required": ["task", "seed"],
    "additionalProperties": False,
}
_ENTRY = {
    "type": "object",
    "properties": {
        "question": {"type": "string"},
        "answer": {"type": ["string", "null"]},
        "metadata": {
            "type": "object",
            "properties": {"source_dataset": {"type": "string"}},
        },
    },
    "required": ["question", "answer", "metadata"],
}


def _schema(description: str, *kinds: dict[str, Any]) -> WithJsonSchema:
    """Describe a field that the functions below validate."""
    return WithJsonSchema({"description": description, "anyOf": list(kinds)})


RecipeField = Annotated[
    Any,
    _schema("A recipe, as an object or its JSON text.", _RECIPE, {"type": "string"}),
]
EntryField = Annotated[Any, _schema("An entry made by reasoning-gym.", _ENTRY)]
LabelField = Annotated[
    Any,
    _schema(
        "A recipe or an entry, or its JSON text.", _RECIPE, _ENTRY, {"type": "string"}
    ),
]
Completion = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Completions = Annotated[
    list[Completion], Field(min_length=1, max_length=MAX_COMPLETIONS), FailFast()
]


def _require_few(value: Any) -> Any:
    """Refuse many fields at once: each would be an error of its own."""
    if isinstance(value, dict) and len(value) > 1000:
        raise ValueError("must have at most 1000 fields")
    return value


class RequestBody(BaseModel):
    """A request; unknown fields are errors."""

    model_config = ConfigDict(strict=True, extra="forbid")
    _few = model_validator(mode="before")(_require_few)


MAX_PARAMETERS = 4096
"""Characters of a task's parameters as JSON: every recipe of the stream repeats them."""

MAX_OPTION_VALUES = 10_000


def _require_small(options: Any) -> Any:
    """Refuse options of a stream that take long to check, or much space in its file."""
    if not isinstance(options, dict):
        return options
    for name, value in _require_few(options).items():
        if isinstance(value, list | dict) and len(value) > MAX_OPTION_VALUES:
            raise ValueError(
                f"{name} must have at most {MAX_OPTION_VALUES} values, got {len(value)}"
            )
    parameters = options.get("task_parameters")
    if isinstance(parameters, dict):
        for task, values in parameters.items():
            if len(json.dumps(values)) > MAX_PARAMETERS:
                raise ValueError(
                    f"task_parameters of {shorten(task)} must have at most {MAX_PARAMETERS} "
                    "characters"
                )
    return options


class Row(BaseModel):
    """A request of another framework; other fields are ignored."""

    model_config = ConfigDict(strict=True, extra="allow")


class ScoreRequest(RequestBody):
    """Completions of one problem, given by its recipe or its entry.

    A stream that handed out the recipe learns the result once its group is whole. It learns the
    scores of one `idempotency_key` once, however often the request is repeated.
    """

    recipe: RecipeField = None
    entry: EntryField = None
    completions: Completions
    stream: Name | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class ContainRequest(RequestBody):
    """Texts for a contained function, with the data that it gets beside each of them."""

    completions: Completions
    data: Any = None


class ScoreReply(BaseModel):
    """One score per completion, in order."""

    scores: list[Score]


class NemoRequest(Row):
    """A NeMo Gym row with the model's response, and the stream that handed out its recipe."""

    responses_create_params: dict[str, Any]
    response: NemoResponse
    recipe: RecipeField = None
    stream: Name | None = None
    question: str | None = None
    answer: str | None = None
    metadata: dict[str, Any] | None = None


class NemoResponse(Row):
    """A response of OpenAI's Responses API."""

    output: Annotated[list[dict[str, Any]], FailFast()]


class NemoReply(Row):
    """The request's fields and the reward; `mask_sample` is true for an unscored response."""

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    reward: Share
    score: Share
    status: Status
    detail: str
    mask_sample: bool
    extracted_answer: str | None
    task_name: str


class OpenRlhfRequest(Row):
    """An OpenRLHF batch: prompts with completions, prompts, and labels.

    Lists may be empty: with fewer samples than services, some services get none.
    """

    query: Annotated[list[Completion], Field(max_length=MAX_COMPLETIONS), FailFast()]
    prompts: Annotated[list[str], Field(max_length=MAX_COMPLETIONS), FailFast()]
    labels: Annotated[list[LabelField], Field(max_length=MAX_COMPLETIONS)]


class OpenRlhfReply(BaseModel):
    """One reward per query, in order."""

    rewards: list[Share]


class SlimeRequest(Row):
    """One slime sample. Only the end of its prompt counts: a text may open the thought."""

    prompt: Any = None
    response: Completion
    label: LabelField


class ProblemsRequest(RequestBody):
    """A request for the next problems of a stream; `options` start a new one."""

    stream: Name
    count: Annotated[int, Field(ge=1, le=64)] = 1
    options: Annotated[StreamOptions | None, BeforeValidator(_require_small)] = None


class ProblemResult(RequestBody):
    """The result of a problem: `solved` of `attempts` scored completions were correct."""

    recipe: RecipeField
    solved: Count
    attempts: Count


class ObserveRequest(RequestBody):
    """Results of problems that a stream handed out."""

    stream: Name
    results: Annotated[
        list[ProblemResult], Field(min_length=1, max_length=256), FailFast()
    ]


class ObserveReply(BaseModel):
    """The number of results that the stream observed."""

    observed: int


class ErrorReply(BaseModel):
    """An error: a sentence that names the field, its value, and what to do."""

    error: str


class HealthReply(BaseModel):
    """The workers' state, `ready` or `starting`, and what the sandbox does not enforce.

    `modules` are those of `--task-modules` with their digests, once the workers are ready.
    """

    status: str
    sandbox_gaps: list[str]
    modules: dict[str, str]


class ServiceReply(BaseModel):
    """What this service is, and its routes."""

    service: str
    version: str
    routes: dict[str, str]


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


def retry_later(status: int, message: str, *, seconds: int = 1) -> HTTPException:
    """Return an error that asks the client to retry after `seconds`."""
    return HTTPException(status, message, headers={"Retry-After": str(seconds)})


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
    if not isinstance(value, dict) or not value.keys() >= set(_ENTRY["required"]):
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


def nemo_text(output: list[dict[str, Any]]) -> str:
    """Return the text of the assistant's messages in a response, without reasoning."""

    def invalid(what: str, value: Any) -> HTTPException:
        return HTTPException(422, f"response.output: {what}, got {shorten(value)}")

    texts = []
    for message in output:
        is_message = message.get("type", "message") == "message"
        if not is_message or message.get("role", "assistant") != "assistant":
            continue
        content = message.get("content") or ""
        parts = (
            [{"type": "output_text", "text": content}]
            if isinstance(content, str)
            else content
        )
        if not isinstance(parts, list):
            raise invalid("a message's content must be a string or a list", content)
        for part in parts:
            if isinstance(part, dict) and part.get("type") == "output_text":
                if not isinstance(part.get("text"), str):
                    raise invalid(
                        "an output_text's text must be a string", part.get("text")
                    )
                texts.append(part["text"])
    text = "".join(texts)
    if len(text) > MAX_CHARACTERS:
        raise invalid(f"String should have at most {MAX_CHARACTERS} characters", text)
    return text


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
