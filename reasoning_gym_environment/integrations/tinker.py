"""An environment for the Tinker cookbook; streams of `shared_gym()` learn from its scores."""

import asyncio
import statistics
from collections.abc import Sequence
from typing import Any

from pydantic import InstanceOf, SkipValidation
from tinker_cookbook.renderers import Renderer
from tinker_cookbook.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from tinker_cookbook.rl.types import Observation, StepResult, StopCondition, Trajectory

from ..gym.arguments import checked
from ..inference.prompts import build_messages, resolve_system_prompt
from ..inference.thoughts import ThoughtFormat
from ..records import Problem, Score, Status
from .shared import chosen_answer_format, shared_gym

__all__ = ["ReasoningGymGroupBuilder", "ReasoningGymProblemEnv"]


class ReasoningGymProblemEnv(ProblemEnv):
    """One question and one reply, whose reward is its score in [0, 1]."""

    @checked
    def __init__(
        self,
        problem: InstanceOf[Problem],
        renderer: SkipValidation[Renderer],
        system_prompt: str = "think",
    ) -> None:
        system = resolve_system_prompt(system_prompt, chosen_answer_format())
        prefix = build_messages(system, "")[:-1]
        super().__init__(renderer, prefix, format_coef=0.0)
        self.problem = problem
        # The renderer's own parsing leaves out special tokens, which mark thoughts of many models.
        self._thoughts = ThoughtFormat(renderer.tokenizer)
        self._prompt = ""
        self.score = Score(score=0.0, status=Status.NO_ANSWER)  # if no reply comes

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        """Return the prompt, and remember whether it opens a thought."""
        observation, stop = await super().initial_observation()
        self._prompt = self.renderer.tokenizer.decode(observation.to_ints())
        return observation, stop

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        """Score the reply in a thread, and record every status as a metric of 0 or 1."""
        text = self._thoughts.text(self._thoughts.decode(action), prompt=self._prompt)
        self.score = await asyncio.to_thread(shared_gym().score, self.problem, text)
        result = await super().step(action, extra=extra)
        result.metrics |= {
            f"status/{s.value}": float(s is self.score.status) for s in Status
        }
        return result

    def get_question(self) -> str:
        return self.problem.question

    def check_answer(self, sample_str: str) -> float:
        return self.score.score or 0.0

    def check_format(self, sample_str: str) -> bool:
        return self.score.answer is not None

    def get_reference_answer(self) -> str:
        return self.problem.oracle or ""


class ReasoningGymGroupBuilder(ProblemGroupBuilder):
    """Rollouts of one problem."""

    async def compute_group_rewards(
        self,
        trajectory_group: list[Trajectory],
        env_group: Sequence[ReasoningGymProblemEnv],
    ) -> list[tuple[float, dict[str, float]]]:
        """Raise unscored rollouts to the mean of the group, so that their advantage is 0."""
        scores = [env.score.score for env in env_group]
        numbers = [score for score in scores if score is not None]
        # exact, so that equal scores stay equal: the cookbook can leave such a group out
        mean = statistics.mean(numbers) if numbers else 0.0
        return [(mean if score is None else 0.0, {}) for score in scores]
