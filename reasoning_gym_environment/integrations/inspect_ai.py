"""An Inspect task and scorer: `inspect eval reasoning_gym_environment/reasoning_gym`."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from ..inference.prompts import resolve_system_prompt
from ..records import FORMAT_FAILURES, Problem, recipe_text
from .shared import evaluation_problems, parse_recipe, shared_gym

__all__ = ["reasoning_gym"]


@task
def reasoning_gym(
    tasks: str | Sequence[str] = (),
    per_task: int = 5,
    difficulty: float | None = None,
    seed: int = 0,
    system_prompt: str = "think",
    complexity_level: float | None = None,
) -> Task:
    """Return a task of held-out problems: see `evaluation_problems`.

    Args:
        system_prompt: "think", "direct" or a text that explains the answer format.
        complexity_level: the old name of difficulty.
    """
    names = [tasks] if isinstance(tasks, str) else tasks
    problems = evaluation_problems(
        shared_gym(),
        names,
        per_task=per_task,
        difficulty=complexity_level if difficulty is None else difficulty,
        seed=seed,
    )
    system = resolve_system_prompt(system_prompt)
    samples = [problem_sample(problem, system) for problem in problems]
    return Task(dataset=MemoryDataset(samples, name="reasoning_gym"), scorer=verifier())


def problem_sample(problem: Problem, system: str) -> Sample:
    """Return a sample; the scorer regenerates the problem from its recipe."""
    prompt = [ChatMessageSystem(content=system)] if system else []
    return Sample(
        input=[*prompt, ChatMessageUser(content=problem.question)],
        target=problem.oracle or "",
        metadata={"task": problem.recipe.task, "recipe": recipe_text(problem.recipe)},
    )


@scorer(metrics=[mean(), stderr()])
def verifier() -> Scorer:
    """Score completions in [0, 1] by the task's own verifier, sandboxed."""

    async def score(state: TaskState, target: Target) -> Score:
        recipe = parse_recipe(state.metadata["recipe"])
        found = await anyio.to_thread.run_sync(shared_gym().score, recipe, state.output.completion)
        explanation = found.detail or found.status.value
        metadata = {"status": found.status.value, "seconds": found.seconds}
        if found.score is None:
            return Score.unscored(
                reason="scoring_failed", explanation=explanation, metadata=metadata
            )
        return Score(
            value=found.score,
            answer=found.answer,
            explanation=explanation,
            reason="invalid_response_format" if found.status in FORMAT_FAILURES else None,
            metadata=metadata,
        )

    return score
