"""The Open Reward Standard: sessions of one problem each, which its answer ends."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple

from fastapi import FastAPI, Header, HTTPException, Request, Response
from pydantic import Field
from starlette.types import Receive, Scope, Send

from ..errors import FixableError
from ..gym.asynchronous import AsyncReasoningGym, Score
from ..problems.seeds import redrawn_seed, split_seed
from ..records import Problem, Recipe
from ..scoring.extraction import as_completion
from ._messages import (
    MAX_CHARACTERS,
    Name,
    RecipeField,
    RequestBody,
    Row,
    Target,
    recipe_target,
    retry_later,
)

ENVIRONMENT = "reasoning_gym"

SIZES = {"train": 10_000, "test": 1_000}
"""Problems of a split, by its kind."""

_SEEDS = {"train": "train", "test": "eval"}

MAX_SESSIONS = 4096
"""Sessions at once; one more is refused, unless some were idle for long."""

IDLE_SECONDS = 900.0
"""Seconds without a request, or a ping, after which a session may be forgotten."""

PING_SECONDS = 10.0
"""Interval of what a client hears while it waits for a score."""

MAX_REDRAWN = 20
"""Faulty items in a row."""

_CHUNK = 4096

_PREFIXES = (f"/{ENVIRONMENT}", "")
"""Of an environment's routes; its clients leave it out."""

_READING = ("/tasks", "/num_tasks", "/task", "/task_range", "/call")
"""Routes of the environment that read a body."""

_ADVICE = (
    "\n\nCall the tool `answer` with your final answer alone, or end your reply with it between "
    "<answer> and </answer>."
)

TOOLS = {
    "tools": [
        {
            "name": "answer",
            "description": "Give the final answer. It is scored, and ends the episode.",
            "input_schema": {
                "type": "object",
                "properties": {"answer": {"type": "string", "description": "The answer alone"}},
                "required": ["answer"],
            },
        }
    ],
    "terminal_tool": {
        "name": "complete",
        "arg": "completion",
        "description": "Takes a reply that calls no tool, with the answer in its tags.",
    },
}
"""The model's tool, and what a client does with a reply that calls none."""

_ARGUMENTS = {"answer": "answer", "complete": "completion"}

ScoreOne = Callable[[Target, str, str | None, Request], Awaitable[Score]]
"""Scores a completion, and tells the score to a stream; HTTPException where that fails."""

SessionId = Annotated[str, Header(alias="X-Session-ID", max_length=100)]
Split = Annotated[str, Field(max_length=200)]


class SplitRequest(RequestBody):
    """A split: `train` or `test`, of a task or category as in `train:gcd`, at a level: `@2`."""

    split: Split


class TaskRequest(SplitRequest):
    """A problem of a split, by its index."""

    index: Annotated[int, Field(ge=0)]


class TaskRangeRequest(SplitRequest):
    """Problems of a split, by bounds as Python's slices have them."""

    start: int | None = None
    stop: int | None = None


class TaskSpec(Row):
    """A problem: that of a split and index, or of a recipe, which a stream may have handed out."""

    split: Split | None = None
    index: Annotated[int, Field(ge=0)] | None = None
    recipe: RecipeField = None
    stream: Name | None = None


class CreateRequest(RequestBody):
    """The problem of a session."""

    env_name: str | None = None
    task_spec: TaskSpec | None = None
    split: Split | None = None
    index: Annotated[int, Field(ge=0)] | None = None
    toolset_name: None = None


class CallRequest(RequestBody):
    """A call of a tool; `task_id` asks again for the result of a call that was made."""

    name: str
    input: dict[str, Any]
    task_id: str | None = None


class _Series(NamedTuple):
    """The problems of a split: each task in turn.

    Attributes:
        kind: train or test.
    """

    kind: str
    tasks: Sequence[str]
    level: int | None

    def spec(self, split: str, index: int) -> dict[str, Any]:
        return {
            "id": f"{split}-{index}",
            "task": self.tasks[index % len(self.tasks)],
            "split": split,
            "index": index,
        }


@dataclass(kw_only=True, slots=True)
class _Session:
    """A problem, and its one call.

    Attributes:
        stream: that learns the score.
        used: when its client was last heard.
    """

    recipe: Recipe
    stream: str | None
    used: float = field(default_factory=time.monotonic)
    call_id: str = ""
    call: asyncio.Task[str] | None = None


class _EventStream(Response):
    """A reply of server-sent events. Starlette's own would watch the client a second time."""

    def __init__(self, events: AsyncIterator[str]) -> None:
        super().__init__(media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for event in self._events:
            await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        await send({"type": "http.response.body"})


class OpenReward:
    """Handlers of the standard's routes.

    Args:
        score: scores one completion.
    """

    def __init__(self, gym: AsyncReasoningGym, score: ScoreOne) -> None:
        self._gym = gym
        self._score = score
        self._sessions: dict[str, _Session] = {}

    def add_to(self, app: FastAPI, responses: dict[int | str, dict[str, Any]]) -> list[str]:
        """Add the routes; return the paths of those that read a body."""
        streaming = {**responses, 200: {"content": {"text/event-stream": {}}}}
        app.get("/list_environments", responses=responses)(self.list_environments)
        app.post("/create_session", responses=streaming)(self.create_session)
        for path in ("/create", "/ping", "/delete", "/delete_session"):
            app.post(path, responses=responses)(getattr(self, path[1:]))
        for prefix in _PREFIXES:
            for path in ("/tools", "/task_tools", "/splits", "/prompt"):
                add = app.get(prefix + path, responses=responses, include_in_schema=bool(prefix))
                add(getattr(self, path[1:]))
            for path in _READING:
                replies = streaming if path == "/call" else responses
                add = app.post(prefix + path, responses=replies, include_in_schema=bool(prefix))
                add(getattr(self, path[1:]))
        return ["/create", *(prefix + path for prefix in _PREFIXES for path in _READING)]

    async def list_environments(self) -> list[str]:
        """List the environments of the Open Reward Standard: one."""
        return [ENVIRONMENT]

    async def tools(self) -> dict[str, Any]:
        """List the tools of a session."""
        return TOOLS

    async def task_tools(self) -> dict[str, Any]:
        """List the tools of a session, which are those of all."""
        return TOOLS

    async def splits(self) -> list[dict[str, str]]:
        """List the splits; each can be narrowed, as in `train:gcd@2`."""
        return [{"name": name, "type": name} for name in SIZES]

    async def num_tasks(self, request: SplitRequest) -> dict[str, int]:
        """Count the problems of a split."""
        return {"num_tasks": SIZES[(await self._series(request.split)).kind]}

    async def tasks(self, request: SplitRequest) -> dict[str, Any]:
        """List the problems of a split."""
        return await self.task_range(TaskRangeRequest(split=request.split))

    async def task_range(self, request: TaskRangeRequest) -> dict[str, Any]:
        """List some problems of a split."""
        series = await self._series(request.split)
        indices = range(SIZES[series.kind])[request.start : request.stop]
        specs = [series.spec(request.split, index) for index in indices]
        return {"tasks": specs, "env_name": ENVIRONMENT}

    async def task(self, request: TaskRequest) -> dict[str, Any]:
        """Return a problem of a split."""
        series = await self._series(request.split)
        _require_index(series, request.split, request.index)
        return {"task": series.spec(request.split, request.index), "env_name": ENVIRONMENT}

    async def create_session(self) -> Response:
        """Return a new session's name, as an event."""
        return _EventStream(_events(("task_id", uuid.uuid4().hex), ("end", "")))

    async def create(self, request: CreateRequest, sid: SessionId) -> dict[str, str]:
        """Give a session its problem."""
        if (request.env_name or ENVIRONMENT).lower() != ENVIRONMENT:
            raise HTTPException(404, f"env_name must be {ENVIRONMENT}, got {request.env_name!r}")
        self._require_new(sid)
        spec = request.task_spec or TaskSpec(split=request.split, index=request.index)
        recipe = await self._recipe(spec)
        self._require_new(sid)  # a concurrent request may have been faster
        self._make_room()
        self._sessions[sid] = _Session(recipe=recipe, stream=spec.stream)
        return {"sid": sid}

    async def prompt(self, sid: SessionId) -> list[dict[str, Any]]:
        """Return the question of a session, as blocks."""
        problem = await self._gym.problem(self._session(sid).recipe)
        return [{"text": problem.question + _ADVICE, "detail": None, "type": "text"}]

    async def call(self, request: CallRequest, sid: SessionId, http: Request) -> Response:
        """Score an answer, as events; it ends the episode."""
        session = self._session(sid)
        if request.task_id is None:
            refusal = _refusal(request, session)
            if refusal is not None:
                return _EventStream(_events(("task_id", uuid.uuid4().hex), ("end", refusal)))
            session.call_id = uuid.uuid4().hex
            session.call = asyncio.create_task(self._result(session, request, http))
        elif request.task_id != session.call_id:
            return _EventStream(_events(("error", "unknown task_id")))
        assert session.call is not None
        return _EventStream(_result_events(session.call_id, session.call))

    async def ping(self, sid: SessionId) -> dict[str, str]:
        """Keep a session."""
        self._session(sid)
        return {"status": "ok"}

    async def delete(self, sid: SessionId) -> dict[str, str]:
        """Forget a session."""
        session = self._sessions.pop(sid, None)
        if session is not None and session.call is not None:
            session.call.cancel()
        return {"sid": sid}

    async def delete_session(self, sid: SessionId) -> dict[str, str]:
        """Forget a session."""
        return await self.delete(sid)

    def _require_new(self, sid: str) -> None:
        if sid in self._sessions:
            raise HTTPException(409, f"session {sid!r} has its problem: create another session")

    def _session(self, sid: str) -> _Session:
        session = self._sessions.get(sid)
        if session is None:
            raise HTTPException(404, f"session {sid!r} does not exist: create it")
        session.used = time.monotonic()
        return session

    def _make_room(self) -> None:
        """Forget idle sessions; HTTPException 429 if there are too many others."""
        oldest = time.monotonic() - IDLE_SECONDS
        if len(self._sessions) >= MAX_SESSIONS:
            self._sessions = {s: each for s, each in self._sessions.items() if each.used > oldest}
        if len(self._sessions) >= MAX_SESSIONS:
            raise retry_later(429, f"{MAX_SESSIONS} sessions are open: try again later")

    async def _series(self, split: str) -> _Series:
        """Return the problems of a split; HTTPException 422 if it is invalid."""
        kind, _, rest = split.partition(":")
        name, at, height = rest.partition("@")
        level = int(height) if height.isascii() and height.isdigit() else None
        tasks = [
            task.name
            for task in await self._gym.tasks()
            if name in ("", task.name, task.category) and (level or 0) < task.levels
        ]
        if kind not in SIZES or not tasks or (at and level is None):
            raise HTTPException(
                422,
                f"split must be train or test, which a task or category may follow as in "
                f"train:gcd, and then a level as in train:gcd@2, got {split!r}",
            )
        return _Series(kind, tasks, level)

    async def _recipe(self, spec: TaskSpec) -> Recipe:
        """Return the recipe of a problem that can be made and is not faulty by mistake."""
        if spec.recipe is not None:
            recipe = recipe_target(spec.recipe).recipe
            await self._gym.problem(recipe)
            return recipe
        if spec.split is None or spec.index is None:
            raise HTTPException(422, "task_spec: give a recipe, or a split and an index")
        series = await self._series(spec.split)
        _require_index(series, spec.split, spec.index)
        return (await self._sound_problem(series, spec.index)).recipe

    async def _sound_problem(self, series: _Series, index: int) -> Problem:
        turn, number = index // len(series.tasks), index % len(series.tasks)
        task = series.tasks[number]
        [example] = await self._gym.problems(task, level=series.level)
        seed = split_seed(_SEEDS[series.kind], 0, task, turn)
        problem = await self._gym.problem(replace(example.recipe, seed=seed))
        for _ in range(MAX_REDRAWN):
            if problem.fault is None:
                break
            recipe = replace(problem.recipe, seed=redrawn_seed(problem.recipe.seed))
            problem = await self._gym.problem(recipe)
        return problem

    async def _result(self, session: _Session, request: CallRequest, http: Request) -> str:
        """Return the result of a call, as JSON."""
        text = request.input[_ARGUMENTS[request.name]]
        completion = as_completion(text) if request.name == "answer" else text
        target = Target(recipe=session.recipe)
        score = await self._score(target, completion, session.stream, http)
        problem = await self._gym.problem(session.recipe)
        output = {
            "blocks": [{"text": score.status.value, "detail": None, "type": "text"}],
            "metadata": {
                **score.to_json(),
                "task": session.recipe.task,
                "level": session.recipe.level,
                "recipe": session.recipe.to_json(),
                "correct_answer": problem.oracle,
            },
            "reward": score.score,
            "finished": True,
        }
        return _json({"ok": True, "output": output})


def _require_index(series: _Series, split: str, index: int) -> None:
    if index >= SIZES[series.kind]:
        raise HTTPException(
            422, f"index of split {split!r} must be below {SIZES[series.kind]}, got {index}"
        )


def _refusal(request: CallRequest, session: _Session) -> str | None:
    """Return the result of a call that is not made, as JSON; None if it can be made."""
    argument = _ARGUMENTS.get(request.name)
    if argument is None:
        reason, error = "not_found", f"{request.name!r} is not a valid tool: call answer"
    elif request.input.keys() != {argument} or not _is_completion(request.input[argument]):
        reason = "input_validation"
        error = f"input of {request.name} must be {argument}, a text of {MAX_CHARACTERS} at most"
    elif session.call is not None:
        reason, error = "episode_finished", "the answer was given: create another session"
    else:
        return None
    return _json({"ok": False, "error": error, "reason": reason})


def _is_completion(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_CHARACTERS


def _json(value: Any) -> str:
    """Return JSON without spaces, since clients strip them from the pieces that they get."""
    return json.dumps(value, separators=(",", ":")).replace(" ", "\\u0020")


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"


async def _events(*events: tuple[str, str]) -> AsyncIterator[str]:
    for name, data in events:
        yield _event(name, data)


async def _result_events(call_id: str, call: asyncio.Task[str]) -> AsyncIterator[str]:
    """Yield a call's name, comments while it lasts, and its result in pieces."""
    yield _event("task_id", call_id)
    while not call.done():
        await asyncio.wait({call}, timeout=PING_SECONDS)
        if not call.done():
            yield ": waiting\n\n"
    try:
        text = call.result()
    except (asyncio.CancelledError, HTTPException, FixableError) as error:
        detail = getattr(error, "detail", str(error)) or "the session was deleted"
        yield _event("error", " ".join(detail.split()))
        return
    for start in range(0, len(text), _CHUNK):
        last = start + _CHUNK >= len(text)
        yield _event("end" if last else "chunk", text[start : start + _CHUNK])
