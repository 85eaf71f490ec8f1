"""An OpenEnv environment: the actions and observations of its `reasoning_gym_env`, contained."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Annotated, Any, ClassVar
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import (
    Action,
    EnvironmentMetadata,
    Observation,
    State,
)
from pydantic import ConfigDict, Field, field_validator

from ..errors import ConfigurationError
from ..gym.arguments import checked
from ..gym.blocking import ReasoningGym
from ..problems.options import Integer
from ..records import Problem, Recipe
from ..scoring.extraction import as_completion
from ..service.app import BearerToken
from ..util.command_line import Section, build

__all__ = [
    "ReasoningGymAction",
    "ReasoningGymEnvironment",
    "ReasoningGymObservation",
    "SharedStream",
    "environment_app",
]

MAX_DATASETS = 256
"""Of a composite dataset: a problem of each is generated when it is opened."""


class ReasoningGymAction(Action):
    """The answer to the question."""

    answer: str = Field(
        description="The final answer alone, or a text that has it between <answer> and "
        "</answer>, or in \\boxed{} where the server's answer_format is boxed or tags-or-boxed"
    )

    @field_validator("answer", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Take a number or list as its JSON: some clients parse what a model wrote."""
        return value if isinstance(value, str) else json.dumps(value)


class ReasoningGymObservation(Observation):
    """A question, or the score of its answer."""

    question: str | None = Field(None, description="The question, after reset")
    score: float | None = Field(
        None, description="The answer's score in [0, 1], after step"
    )
    correct_answer: str | None = Field(
        None, description="A right answer, after step; null where the library has none"
    )
    dataset_metadata: dict[str, Any] | None = Field(
        None, description="The task and the recipe of the problem, after step"
    )


class _Arguments(Section):
    """Arguments of `ReasoningGymEnvironment.reset`; unknown names and wrong types are errors."""

    model_config = ConfigDict(strict=True)


class _Spec(_Arguments):
    """A dataset of a composite one."""

    unknown_name_hint: ClassVar[str] = "a dataset has name, weight, config and level"

    name: str
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)] = 1.0
    config: dict[str, Any] = Field({})
    level: Annotated[Integer | None, Field(ge=0)] = None


class _Reset(_Arguments):
    """The arguments of `ReasoningGymEnvironment.reset`, which documents them."""

    unknown_name_hint: ClassVar[str] = "see the arguments of reset"

    seed: Annotated[Integer | None, Field(ge=0)] = None
    episode_id: str | None = None
    dataset_name: str | None = None
    dataset_config: dict[str, Any] | None = None
    dataset_specs: list[_Spec] | None = None
    size: Annotated[Integer | None, Field(ge=1)] = None
    level: Annotated[Integer | None, Field(ge=0)] = None


class SharedStream:
    """A stream of problems for all sessions of a server, which learns from their scores.

    Args:
        tasks: tasks and categories; empty means all.
        options: see `StreamOptions`. `group_size` is the number of resets with one seed that get
            the same problem, by default 1; the next one gets another problem.

    Example:
        shared = SharedStream(gym, ["gcd"], complexity_mode="curriculum", group_size=8)
    """

    def __init__(
        self, gym: ReasoningGym, tasks: Sequence[str] = (), **options: Any
    ) -> None:
        self._group_size = options.get("group_size") or 1
        options["group_size"] = self._group_size
        self._stream = gym.stream(tasks, **options)
        self._open: dict[int, tuple[Problem, int]] = {}
        self._lock = Lock()

    def next(self, seed: int | None) -> Problem:
        """Return the problem of a seed's group; ConfigurationError if groups need a seed."""
        if self._group_size == 1:
            return self._stream.next()
        if seed is None:
            raise ConfigurationError(
                f"seed is missing: with groups of {self._group_size}, sessions that reset with "
                "the same seed get the same problem"
            )
        with self._lock:
            if seed not in self._open:
                self._open[seed] = self._stream.next(), self._group_size
            problem, resets_left = self._open.pop(seed)
            if resets_left > 1:
                self._open[seed] = problem, resets_left - 1
            if len(self._open) > 4096:  # groups that never become whole
                del self._open[next(iter(self._open))]
        return problem


class ReasoningGymEnvironment(
    Environment[ReasoningGymAction, ReasoningGymObservation, State]
):
    """A session: `reset` asks a question, `step` scores the answer in a sandboxed process.

    Example:
        with ReasoningGym() as gym:
            environment = ReasoningGymEnvironment(gym, SharedStream(gym))
            print(environment.reset().question)
            print(environment.step(ReasoningGymAction(answer="4")).score)
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    @checked
    def __init__(self, gym: ReasoningGym, shared: SharedStream) -> None:
        super().__init__()
        self._gym = gym
        self._shared = shared
        self._dataset: Iterator[Recipe] | None = None
        self._problem: Problem | None = None
        self._state = State(episode_id=str(uuid4()))

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> ReasoningGymObservation:
        """Ask the next question: of a dataset, once one is named, else of the server's stream.

        Args:
            seed: of the dataset; without one, of the stream's group.
            options: `dataset_name`, a task or "composite"; `dataset_config`, its parameters;
                `dataset_specs` of a composite one, each with a name and optionally `weight`,
                `config` and `level`; `size`, after which items start again; and `level`, on the
                task's ladder, where 0 is the easiest. Others raise ConfigurationError.
        """
        options_given = build(
            _Reset, {"seed": seed, "episode_id": episode_id, **options}
        )
        self._problem = None
        if options_given.dataset_name is not None:
            self._dataset = self._open_dataset(options_given)
        elif (
            options_given.level is not None
            or options_given.dataset_config
            or options_given.dataset_specs
            or options_given.size
        ):
            raise ConfigurationError(
                "dataset_name is missing: other arguments describe a dataset"
            )
        if self._dataset is None:
            problem = self._shared.next(options_given.seed)
        else:
            problem = self._gym.problem(next(self._dataset), split="train")
        self._problem = problem
        self._state = State(
            episode_id=options_given.episode_id or str(uuid4()),
            task=problem.recipe.task,
            level=problem.recipe.level,
        )
        return ReasoningGymObservation(question=problem.question, reward=0.0)

    def _open_dataset(self, options: _Reset) -> Iterator[Recipe]:
        """Yield the items of the library's dataset of a name, in its order, again and again."""
        name = options.dataset_name or ""
        seed = options.seed
        if seed is None or options.size is None:
            raise ConfigurationError(
                f"seed and size must be given with dataset_name {name!r}"
            )
        indices = itertools.cycle(range(options.size))
        if name != "composite":
            template = self._template(name, options.level, options.dataset_config or {})
            return (replace(template, seed=seed + index) for index in indices)
        specs = options.dataset_specs
        if not specs:
            raise ConfigurationError(
                "dataset_specs must be given with dataset_name 'composite': a list of datasets"
            )
        if len(specs) > MAX_DATASETS:
            raise ConfigurationError(
                f"dataset_specs: the most are {MAX_DATASETS} datasets, got {len(specs)}"
            )
        weights = [spec.weight for spec in specs]
        if not 0 < sum(weights) < math.inf:
            raise ConfigurationError(
                f"dataset_specs: the sum of the weights must be > 0 and finite, got {sum(weights)}"
            )
        templates = [
            self._template(spec.name, spec.level, spec.config) for spec in specs
        ]

        def recipe(index: int) -> Recipe:
            [which] = random.Random(seed + index).choices(
                range(len(specs)), weights=weights
            )
            # The library numbers its seeds so.
            return replace(templates[which], seed=seed + which + 1 + index)

        return map(recipe, indices)

    def _template(
        self, task: str, level: int | None, parameters: Mapping[str, Any]
    ) -> Recipe:
        """Return a recipe of a task with the parameters of a level; ConfigurationError if wrong."""
        [problem] = self._gym.problems(task, level=level, parameters=parameters)
        return problem.recipe

    def step(
        self, action: ReasoningGymAction, timeout_s: float | None = None, **_: Any
    ) -> ReasoningGymObservation:
        """Score the answer and end the episode.

        Args:
            timeout_s: has no effect; the gym has deadlines.

        Raises:
            RuntimeError: scoring failed on our side, which is not a 0; step again.
        """
        problem = self._problem
        if problem is None:
            raise ConfigurationError("there is no question to answer: call reset first")
        self._state.step_count += 1
        completion = as_completion(action.answer, self._gym.answer_format)
        score = self._gym.score(problem, completion)
        if score.score is None:
            raise RuntimeError(
                f"cannot score the answer now, step again: {score.detail}"
            )
        self._problem = None
        recipe = problem.recipe
        return ReasoningGymObservation(
            score=score.score,
            reward=score.score,
            done=True,
            correct_answer=problem.oracle,
            dataset_metadata={
                "source_dataset": recipe.task,
                "recipe": recipe.to_json(),
            },
            metadata={
                "task": recipe.task,
                "level": recipe.level,
                "status": score.status.value,
                "detail": score.detail,
            },
        )

    @property
    def state(self) -> State:
        """The episode's identity, its task and level, and the number of steps."""
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """Return the name and a description."""
        return EnvironmentMetadata(
            name="reasoning_gym_env",
            description="One question of reasoning-gym per episode, scored in a sandbox.",
        )


def environment_app(
    gym: ReasoningGym,
    shared: SharedStream,
    *,
    sessions: int,
    token: str | None = None,
) -> FastAPI:
    """Return OpenEnv's application of this environment, for any ASGI server.

    Args:
        sessions: that may be connected at once; one more is refused.
        token: that clients must have in the address, `http://token:TOKEN@host`, or several, one a
            line; None requires none.
    """
    app: FastAPI = create_app(
        lambda: ReasoningGymEnvironment(gym, shared),
        ReasoningGymAction,
        ReasoningGymObservation,
        env_name="reasoning_gym_env",
        max_concurrent_envs=sessions,
    )
    if token is not None:
        app.add_middleware(BearerToken, tokens=token.splitlines())

    @app.exception_handler(ConfigurationError)
    async def reply_to_error(_: Request, error: Exception) -> JSONResponse:
        """Return an error of a route; sessions get theirs as messages."""
        return JSONResponse({"detail": str(error)}, status_code=422)

    @app.exception_handler(RequestValidationError)
    async def refuse(_: Request, error: RequestValidationError) -> JSONResponse:
        """Return what is wrong with a request, without its values: JSON can't write a NaN."""
        mistakes = [
            {name: mistake[name] for name in ("type", "loc", "msg")}
            for mistake in error.errors()
        ]
        return JSONResponse({"detail": mistakes}, status_code=422)

    return app
