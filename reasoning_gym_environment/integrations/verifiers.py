"""A taskset for verifiers (v1): `vf-eval reasoning-gym-taskset`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import Field

from ..errors import ConfigurationError
from ..inference.prompts import resolve_system_prompt
from ..problems.levels import ComplexityMode
from ..problems.sampler import TaskSampling
from ..problems.seeds import EVAL_SEED
from ..problems.stream import is_skipped
from ..records import Problem, Recipe, Status, recipe_text
from ..service.client import RewardClient, split_stream_url
from ..storage.dumps import read_rows
from ..tasks.recipes import read_recipe
from ..util.files import append_whole, write_whole
from .shared import (
    chosen_answer_format,
    demonstration,
    evaluation_problems,
    parse_recipe,
    score_by_recipe,
    shared_gym,
)

__all__ = [
    "ReasoningGymConfig",
    "ReasoningGymData",
    "ReasoningGymTask",
    "ReasoningGymTaskset",
]


class ReasoningGymConfig(vf.TasksetConfig):
    """The options `--env.taskset.*`.

    Attributes:
        tasks: tasks and categories; empty means all.
        per_task: the number of held-out problems per task; None means an endless stream of
            training problems.
        difficulty: from 0, each task's easiest level, to 1, its hardest; None is the library's
            default configuration.
        complexity_mode, sampling, group_size: of the stream; see `StreamOptions`.
        curriculum_url: of a stream of a reward service, which makes and scores the problems of all
            processes, such as http://127.0.0.1:8080/run-1; None means this process.
        state_folder: of the run, which keeps the tasks that the stream has handed out, and the
            stream's state. A resumed run gets the same tasks again, then those that follow.
        seed: of the stream, by default 0, or of held-out problems, by default `evaluate`'s.
    """

    tasks: list[str] = Field(default_factory=list)
    per_task: int | None = Field(default=None, ge=1)
    difficulty: float | None = None
    complexity_mode: ComplexityMode | None = None
    sampling: TaskSampling = "uniform"
    group_size: int | None = None
    curriculum_url: str | None = None
    state_folder: Path | None = None
    seed: int | None = None


class ReasoningGymData(vf.TaskData):
    """A question and the recipe of its problem, as JSON text; and the stream that asks it."""

    recipe: str
    curriculum_url: str | None = None


class ReasoningGymTask(vf.Task[ReasoningGymData]):
    """A question whose reply is scored."""

    @property
    def key(self) -> str:
        """The recipe of its problem, whatever its place and its prompt are."""
        recipe: str = self.data.recipe
        return recipe

    @vf.reward
    async def reasoning_gym(self, trace: vf.Trace) -> float:
        """Return the reply's score in [0, 1], and record every status as a metric of 0 or 1.

        Raises:
            RuntimeError: the reply is unscored; verifiers then counts an error, not a 0.
        """
        data = self.data
        score = await asyncio.to_thread(
            score_by_recipe,
            data.recipe,
            trace.last_reply,
            curriculum_url=data.curriculum_url,
        )
        trace.record_metrics(
            {status.value: float(status is score.status) for status in Status}
        )
        if score.score is None:
            raise RuntimeError(f"{self.data.name} is unscored: {score.detail}")
        return score.score

    async def validate(self, runtime: Any) -> bool | None:
        """Return whether the task's own answer is solved; None if several answers are right."""
        gym = shared_gym()
        problem = await asyncio.to_thread(gym.problem, parse_recipe(self.data.recipe))
        if problem.oracle is None:
            return None
        text = demonstration(problem.oracle, "direct", gym.answer_format)
        score = await asyncio.to_thread(gym.score, problem, text)
        return score.solved and not is_skipped(problem)


class ReasoningGymTaskset(vf.Taskset[ReasoningGymTask, ReasoningGymConfig]):
    """An endless stream of training problems, or a number of held-out problems per task.

    The stream learns from the rewards of its tasks.
    """

    INFINITE = True

    def __new__(cls, config: ReasoningGymConfig | None = None) -> ReasoningGymTaskset:
        """Return a `HeldOutTaskset` for held-out problems; a copy is made without `config`.

        prime-rl asks the class whether its tasks end, and makes a list of those that do.
        """
        is_held_out = config is not None and config.per_task is not None
        new: ReasoningGymTaskset
        new = super().__new__(HeldOutTaskset if is_held_out else cls)
        return new

    def __init__(self, config: ReasoningGymConfig) -> None:
        super().__init__(config)
        for name in (
            "curriculum_url",
            "state_folder",
            "complexity_mode",
            "sampling",
            "group_size",
        ):
            default = ReasoningGymConfig.model_fields[name].default
            if getattr(config, name) != default and config.per_task is not None:
                raise ConfigurationError(
                    f"per_task must be unset with {name}, got {config.per_task}: held-out "
                    "problems come from no stream"
                )

    def load(self) -> Iterator[ReasoningGymTask]:
        """Yield the tasks; the same for the same configuration, unless levels follow rewards.

        Those that the state folder holds come first: a resumed trainer takes them again.
        """
        folder = self.config.state_folder
        file = folder / "tasks.jsonl" if folder else None
        rows, torn = read_rows(file) if file and file.exists() else ([], 0)
        if file and torn:  # what is appended would be a part of that line
            write_whole(file, "".join(f"{json.dumps(row)}\n" for row in rows))
        kept = ((read_recipe(row["recipe"]), row["question"]) for row in rows)
        for number, (recipe, question) in enumerate(chain(kept, self._problems())):
            if file and number >= len(rows):
                file.parent.mkdir(parents=True, exist_ok=True)
                row = {"recipe": recipe.to_json(), "question": question}
                append_whole(file, f"{json.dumps(row)}\n".encode())
            data = ReasoningGymData(
                name=recipe.task,
                system_prompt=resolve_system_prompt("think", chosen_answer_format()),
                prompt=question,
                recipe=recipe_text(recipe),
                curriculum_url=self.config.curriculum_url,
            )
            yield ReasoningGymTask(data, self.config.task)

    def _problems(self) -> Iterator[tuple[Recipe, str]]:
        config = self.config
        if config.curriculum_url is not None:
            address, stream = split_stream_url(config.curriculum_url)
            client = RewardClient(address)
            while True:
                [served] = client.problems(stream, 1, self._stream_options())
                yield read_recipe(served["recipe"]), served["question"]
        problems: Iterable[Problem]
        if config.per_task is None:
            problems = self._stream()
        else:
            problems = evaluation_problems(
                shared_gym(),
                config.tasks,
                per_task=config.per_task,
                difficulty=config.difficulty,
                seed=EVAL_SEED if config.seed is None else config.seed,
            )
        for problem in problems:
            yield problem.recipe, problem.question

    def _stream(self) -> Iterator[Problem]:
        """Yield the problems of a stream of this process, whose state the state folder keeps."""
        stream = shared_gym().stream(**self._stream_options())
        folder = self.config.state_folder
        if folder and (folder / "stream.json").exists():
            stream.load_state_dict(json.loads((folder / "stream.json").read_bytes()))
        for problem in stream:
            if folder:
                write_whole(folder / "stream.json", json.dumps(stream.state_dict()))
            yield problem

    def _stream_options(self) -> dict[str, Any]:
        config = self.config
        fixed = None if config.difficulty is None else "fixed"
        return {
            "tasks": config.tasks,
            "complexity_mode": config.complexity_mode or fixed,
            "difficulty": config.difficulty,
            "sampling": config.sampling,
            "group_size": config.group_size,
            "seed": config.seed or 0,
        }


class HeldOutTaskset(ReasoningGymTaskset):
    """A number of held-out problems per task."""

    INFINITE = False
