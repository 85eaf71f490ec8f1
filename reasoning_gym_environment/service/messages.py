"""The service's requests and replies. They are checked, and described to clients, as they stand."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from ..records import Status

MOST_COMPLETIONS = 256
"""In one request."""

MOST_CHARACTERS = 2**19
"""Of one completion."""

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


def _described(about: str, *kinds: dict[str, Any]) -> WithJsonSchema:
    """Describe a field that `items` reads."""
    return WithJsonSchema({"description": about, "anyOf": list(kinds)})


RecipeField = Annotated[
    Any, _described("A recipe, as an object or its JSON text.", _RECIPE, {"type": "string"})
]
EntryField = Annotated[Any, _described("An entry made by reasoning-gym itself.", _ENTRY)]
LabelField = Annotated[
    Any,
    _described("A recipe or an entry, or its JSON text.", _RECIPE, _ENTRY, {"type": "string"}),
]
Completion = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Completions = Annotated[list[Completion], Field(min_length=1, max_length=MOST_COMPLETIONS)]


class Request(BaseModel):
    """What a client sends: a field that isn't known is a mistake."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Row(BaseModel):
    """What another framework sends: its own fields stay unread."""

    model_config = ConfigDict(strict=True, extra="allow")


class ScoreRequest(Request):
    """Completions of one problem: give its recipe, or an entry."""

    recipe: RecipeField = None
    entry: EntryField = None
    completions: Completions


class ScoreReply(BaseModel):
    """One score for each completion, in their order."""

    scores: list[ScoredCompletion]


class ScoredCompletion(BaseModel):
    """What became of a completion: a score of null is the service's failure, not worth 0."""

    score: Share | None
    status: Status
    answer: str | None
    detail: str
    seconds: float


class VerifyRequest(Row):
    """NeMo Gym's: a row, what was asked, and the model's response."""

    responses_create_params: dict[str, Any]
    response: NemoResponse
    recipe: RecipeField = None
    question: str | None = None
    answer: str | None = None
    metadata: dict[str, Any] | None = None


class NemoResponse(Row):
    """A response as of OpenAI's API of that name."""

    output: list[dict[str, Any]]


class VerifyReply(Row):
    """The request's fields, and the reward; `mask_sample` is true where nothing can be said."""

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
    """OpenRLHF's: texts of prompt and completion, the prompts, and a label each.

    Lists may be empty: with fewer samples than services some get none.
    """

    query: Annotated[list[Completion], Field(max_length=MOST_COMPLETIONS)]
    prompts: list[str]
    labels: list[LabelField]


class OpenRlhfReply(BaseModel):
    """A reward for each query, in their order."""

    rewards: list[Share]


class SlimeRequest(Row):
    """Of slime: one sample. Its prompt is not read."""

    prompt: Any = None
    response: Completion
    label: LabelField


class StreamRequestOptions(Request):
    """Which problems a stream has: as the environment's options of the same names."""

    tasks: list[str] = []
    exclude_tasks: list[str] = []
    task_weights: dict[str, Annotated[float, Field(ge=0, le=1e9)]] = {}
    task_parameters: dict[str, dict[str, Any]] = {}
    complexity_mode: str | None = None
    complexity_level: Share | None = None
    curriculum_target_accuracy: Annotated[float, Field(gt=0, lt=1)] = 0.7
    sampling: str = "uniform"
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0
    replica: Annotated[str, Field(max_length=100)] = ""
    reserved: list[str] = []


class ProblemsRequest(Request):
    """The next problems of a stream; `options` begin it."""

    stream: Name
    count: Annotated[int, Field(ge=1, le=64)] = 1
    options: StreamRequestOptions | None = None


class StreamedProblem(BaseModel):
    """A question, and the recipe by which it is scored and told back."""

    recipe: dict[str, Any]
    question: str


class ProblemsReply(BaseModel):
    """As many as were asked for."""

    problems: list[StreamedProblem]


class Observation(Request):
    """What became of a problem: `solved` of `attempts` scored completions were right."""

    recipe: RecipeField
    solved: Count
    attempts: Count


class ObserveRequest(Request):
    """Results of problems that a stream has handed out."""

    stream: Name
    results: Annotated[list[Observation], Field(min_length=1, max_length=256)]


class ObserveReply(BaseModel):
    """How many results the stream has learnt from."""

    observed: int


class ErrorReply(BaseModel):
    """Why there is no answer: a sentence that names the field, its value and the way out."""

    error: str


class HealthReply(BaseModel):
    """Whether worker processes are up."""

    status: str
