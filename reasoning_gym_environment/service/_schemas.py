"""Requests and replies of the service, from which its OpenAPI document is made."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import from_json

from ..records import Status

MAX_COMPLETIONS = 256
"""Completions in one request."""

MAX_CHARACTERS = 2**19
"""Characters of one completion."""

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**31)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

_RECIPE = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "maxLength": 100},
        "seed": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
        "level": {"type": ["integer", "null"], "minimum": 0, "maximum": 999},
        "parameters": {"type": "object"},
    },
    "required": ["task", "seed"],
    "additionalProperties": False,
}
_ENTRY = {
    "type": "object",
    "properties": {
        "question": {"type": "string"},
        "answer": {"type": ["string", "null"]},
        "metadata": {"type": "object", "properties": {"source_dataset": {"type": "string"}}},
    },
    "required": ["question", "answer", "metadata"],
}


def _schema(description: str, *kinds: dict[str, Any]) -> WithJsonSchema:
    """Describe a field that `formats` validates."""
    return WithJsonSchema({"description": description, "anyOf": list(kinds)})


RecipeField = Annotated[
    Any, _schema("A recipe, as an object or its JSON text.", _RECIPE, {"type": "string"})
]
EntryField = Annotated[Any, _schema("An entry made by reasoning-gym.", _ENTRY)]
LabelField = Annotated[
    Any,
    _schema("A recipe or an entry, or its JSON text.", _RECIPE, _ENTRY, {"type": "string"}),
]
Completion = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Completions = Annotated[list[Completion], Field(min_length=1, max_length=MAX_COMPLETIONS)]


class RequestBody(BaseModel):
    """A request; unknown fields are errors."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Row(BaseModel):
    """A request of another framework; other fields are ignored."""

    model_config = ConfigDict(strict=True, extra="allow")


class ScoreRequest(RequestBody):
    """Completions of one problem, given by its recipe or its entry."""

    recipe: RecipeField = None
    entry: EntryField = None
    completions: Completions


class ScoreReply(BaseModel):
    """One score per completion, in order."""

    scores: list[ScoredCompletion]


class ScoredCompletion(BaseModel):
    """The score of one completion; null means that the service failed, not that it is wrong."""

    model_config = ConfigDict(from_attributes=True)

    score: Share | None
    status: Status
    answer: str | None
    detail: str
    seconds: float


class VerifyRequest(Row):
    """A NeMo Gym row with the model's response."""

    responses_create_params: dict[str, Any]
    response: NemoResponse
    recipe: RecipeField = None
    question: str | None = None
    answer: str | None = None
    metadata: dict[str, Any] | None = None


class NemoResponse(Row):
    """A response of OpenAI's Responses API."""

    output: list[dict[str, Any]]


class VerifyReply(Row):
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

    query: Annotated[list[Completion], Field(max_length=MAX_COMPLETIONS)]
    prompts: list[str]
    labels: list[LabelField]


class OpenRlhfReply(BaseModel):
    """One reward per query, in order."""

    rewards: list[Share]


class SlimeRequest(Row):
    """One slime sample; its prompt is ignored."""

    prompt: Any = None
    response: Completion
    label: LabelField


class StreamRequestOptions(RequestBody):
    """Options of a stream, as the environment's options of the same names."""

    tasks: list[str] = []
    exclude_tasks: list[str] = []
    task_weights: dict[str, Annotated[float, Field(ge=0, le=1e9)]] = {}
    task_parameters: dict[str, dict[str, Any]] = {}
    complexity_mode: str | None = None
    difficulty: Share | None = None
    complexity_level: Share | None = None
    curriculum_target_accuracy: Annotated[float, Field(gt=0, lt=1)] = 0.7
    sampling: str = "uniform"
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0
    replica: Annotated[str, Field(max_length=100)] = ""
    reserved: list[str] = []


class ProblemsRequest(RequestBody):
    """A request for the next problems of a stream; `options` start a new one."""

    stream: Name
    count: Annotated[int, Field(ge=1, le=64)] = 1
    options: StreamRequestOptions | None = None


class StreamedProblem(BaseModel):
    """A question and the recipe that scores and observes it."""

    recipe: dict[str, Any]
    question: str


class ProblemsReply(BaseModel):
    """The next problems of the stream."""

    problems: list[StreamedProblem]


class Observation(RequestBody):
    """The result of a problem: `solved` of `attempts` scored completions were correct."""

    recipe: RecipeField
    solved: Count
    attempts: Count


class ObserveRequest(RequestBody):
    """Results of problems that a stream handed out."""

    stream: Name
    results: Annotated[list[Observation], Field(min_length=1, max_length=256)]


class ObserveReply(BaseModel):
    """The number of results that the stream observed."""

    observed: int


class ErrorReply(BaseModel):
    """An error: a sentence that names the field, its value, and what to do."""

    error: str


class HealthReply(BaseModel):
    """The state of the worker processes: `ready` or `starting`."""

    status: str


def read_json(text: bytes | str, name: str) -> Any:
    """Return the value of JSON text that is at most 200 levels deep and has only finite numbers.

    Args:
        name: of the text, for the error.

    Raises:
        HTTPException: it is not such JSON.
    """
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise HTTPException(400, f"{name} is not valid JSON: {error}") from None
    try:
        json.dumps(value, allow_nan=False)  # 1e999 parses as infinity
    except ValueError:
        raise HTTPException(400, f"{name} has a number that is too large") from None
    return value
