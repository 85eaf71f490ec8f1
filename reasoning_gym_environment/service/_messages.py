"""Messages of the service: requests, replies and errors.

They are one table. The OpenAPI document is made from the models.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

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

from ..problems.options import StreamOptions
from ..records import Score, Status
from ..tasks.recipes import VERSION
from ..util.values import shorten
from .client import STREAM_NAME

MAX_COMPLETIONS = 256
"""Completions in one request."""

MAX_CHARACTERS = 2**19
"""Characters of one completion."""

MAX_VALUES = 2**19
"""Values in one JSON text, more than 4 MiB of token ids and logprobs have."""

RewardValue = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**31)]
Name = Annotated[str, Field(pattern=f"^{STREAM_NAME}$")]

REQUIRED_OF_ENTRY = ("question", "answer", "metadata")

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
    "required": [*REQUIRED_OF_ENTRY],
}


def _schema(description: str, *kinds: dict[str, Any]) -> WithJsonSchema:
    """Describe a field that the functions of `_targets` read."""
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
CompletionText = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Completions = Annotated[
    list[CompletionText], Field(min_length=1, max_length=MAX_COMPLETIONS), FailFast()
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


class ForeignMessage(BaseModel):
    """A message of another framework; other fields are ignored."""

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
    data: Any  # required, if null: a function that misses it would score all texts 0


class ScoreReply(BaseModel):
    """One score per completion, in order."""

    scores: list[Score]


class NemoRequest(ForeignMessage):
    """A NeMo Gym row with the model's response, and the stream that handed out its recipe."""

    responses_create_params: dict[str, Any]
    response: NemoResponse
    recipe: RecipeField = None
    stream: Name | None = None
    question: str | None = None
    answer: str | None = None
    metadata: dict[str, Any] | None = None
    instance_config: dict[str, Any] | None = None


class NemoResponse(ForeignMessage):
    """A response of OpenAI's Responses API."""

    output: Annotated[list[dict[str, Any]], FailFast()]


class NemoReply(ForeignMessage):
    """The request's fields and the reward.

    `mask_sample` is true for an unscored response, here for NeMo Gym and in `instance_config` for
    NeMo RL. `failure_kind`, a word of NeMo Gym, and `failure_reason` then say why.
    """

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    reward: RewardValue
    score: RewardValue
    status: Status
    detail: str
    mask_sample: bool
    instance_config: dict[str, Any]
    failure_kind: str | None
    failure_reason: str | None
    extracted_answer: str | None
    task_name: str


class NemoSession(ForeignMessage):
    """A rollout's begin or end in NeMo Gym; its environment servers name the session."""

    resources_session_id: str | None = None


class NemoMetricsRequest(ForeignMessage):
    """The responses of a run, without their texts."""

    verify_responses: list[dict[str, Any]]


class NemoMetricsReply(BaseModel):
    """Statistics over all rollouts, the main ones of them, and those of each row."""

    agent_metrics: dict[str, Any]
    key_metrics: dict[str, Any]
    group_level_metrics: list[dict[str, Any]]


class OpenRlhfRequest(ForeignMessage):
    """An OpenRLHF batch: prompts with completions, prompts, and labels.

    Lists may be empty: with fewer samples than services, some services get none.
    """

    query: Annotated[
        list[CompletionText], Field(max_length=MAX_COMPLETIONS), FailFast()
    ]
    prompts: Annotated[list[str], Field(max_length=MAX_COMPLETIONS), FailFast()]
    labels: Annotated[list[LabelField], Field(max_length=MAX_COMPLETIONS)]


class OpenRlhfReply(BaseModel):
    """One reward per query, in order."""

    rewards: list[RewardValue]


class SlimeRequest(ForeignMessage):
    """One slime sample. Only the end of its prompt counts: a text may open the thought."""

    prompt: Any = None
    response: CompletionText
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


def retry_later(status: int, message: str, *, seconds: int = 1) -> HTTPException:
    """Return an error that asks the client to retry after `seconds`."""
    return HTTPException(status, message, headers={"Retry-After": str(seconds)})
