"""An Inspect task and scorer: `inspect eval reasoning_gym_environment/reasoning_gym`."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, GenerateConfig
from inspect_ai.scorer import (
    Score,
    Scorer,
    Target,
    mean,
    scorer,
    stderr,
)
from inspect_ai.solver import TaskState

from ..inference.prompts import resolve_system_prompt
from ..problems.seeds import EVAL_SEED
from ..problems.suites import (
    Suite,
    load_suite,
    require_same_questions,
    require_tags,
)
from ..records import FORMAT_FAILURES, Problem, recipe_text
from .shared import (
    chosen_answer_format,
    evaluation_problems,
    parse_recipe,
    shared_gym,
)

__all__ = ["reasoning_gym"]


@task
def reasoning_gym(
    tasks: str | Sequence[str] = (),
    per_task: int = 5,
    difficulty: float | None = None,
    seed: int = EVAL_SEED,
    system_prompt: str = "think",
    suite: str = "",
) -> Task:
    """Return a task of held-out problems (see `evaluation_problems`) or of a suite.

    Args:
        suite: a name of the command `suite list`, or a file; it fixes all other arguments, the
            temperature and the number of attempts.
        system_prompt: "think", "direct" or a text that explains the answer format.
    """
    if suite:
        return suite_task(load_suite(suite))
    names = [tasks] if isinstance(tasks, str) else tasks
    problems = evaluation_problems(
        shared_gym(),
        names,
        per_task=per_task,
        difficulty=difficulty,
        seed=seed,
    )
    system = resolve_system_prompt(system_prompt, chosen_answer_format())
    samples = [problem_sample(problem, system) for problem in problems]
    return Task(dataset=MemoryDataset(samples, name="reasoning_gym"), scorer=verifier())


def suite_task(suite: Suite) -> Task:
    """Return a task of a suite's items.

    Raises FixableError if the library makes other questions; ConfigurationError for answers in
    boxes.
    """
    require_tags(chosen_answer_format())
    problems = [shared_gym().problem(recipe) for recipe, _ in suite.recipes()]
    require_same_questions(suite, problems)
    settings = suite.settings
    samples = [problem_sample(problem, settings.system_prompt) for problem in problems]
    return Task(
        dataset=MemoryDataset(samples, name=suite.name),
        scorer=verifier(),
        config=GenerateConfig(
            temperature=settings.eval_temperature, max_tokens=settings.max_token_length
        ),
        epochs=settings.eval_attempts,
        metadata={"suite": suite.identity},
    )


def problem_sample(problem: Problem, system: str) -> Sample:
    """Return a sample; the scorer regenerates the problem from its recipe."""
    prompt = [ChatMessageSystem(content=system)] if system else []
    return Sample(
        input=[*prompt, ChatMessageUser(content=problem.question)],
        target=problem.oracle or "",
        metadata={"task": problem.recipe.task, "recipe": recipe_text(problem.recipe)},
    )


@scorer(metrics={"score": [mean(), stderr()], "solved": [mean(), stderr()]})
def verifier() -> Scorer:
    """Score completions by the task's own verifier, sandboxed.

    A value has the `score` in [0, 1], and `solved`: 1 for a right answer without partial credit,
    else 0. Inspect reduces the values of several epochs, and of metadata keeps the first epoch's.
    """

    async def score(state: TaskState, target: Target) -> Score:
        recipe = parse_recipe(state.metadata["recipe"])
        score = await anyio.to_thread.run_sync(
            shared_gym().score, recipe, state.output.completion
        )
        explanation = score.detail or score.status.value
        metadata = {"status": score.status.value, "seconds": score.seconds}
        if score.score is None:
            return Score.unscored(
                reason="scoring_failed", explanation=explanation, metadata=metadata
            )
        return Score(
            value={"score": score.score, "solved": float(score.solved)},
            answer=score.answer,
            explanation=explanation,
            reason="invalid_response_format"
            if score.status in FORMAT_FAILURES
            else None,
            metadata=metadata,
        )

    return score
