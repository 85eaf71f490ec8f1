"""Helpers of several adapters: a shared gym, held-out problems, rows, recipes as text."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args

from pydantic import Field, PlainValidator

from ..errors import ConfigurationError
from ..gym.arguments import AS_LIST, Number, Text, checked
from ..gym.blocking import ReasoningGym
from ..inference.prompts import (
    build_messages,
    built_in_prompts,
    resolve_system_prompt,
)
from ..problems.options import Integer, split_names
from ..problems.seeds import EVAL_SEED, evaluation_levels
from ..records import Problem, Score, Status, recipe_text
from ..scoring.extraction import AnswerFormat, shortest_reply
from ..scoring.grading import FormatVerifier, verify_texts
from ..service.client import RewardClient, split_stream_url
from ..tasks.catalogue import Discovery, select_tasks
from ..util.values import shorten

__all__ = ["evaluation_problems", "problem_row", "shared_gym"]


@functools.cache
def shared_gym() -> ReasoningGym:
    """Return this process's gym, for frameworks that create tasks and scorers by name.

    $REASONING_GYM_TASK_MODULES names modules with tasks of your own, separated by commas.
    `chosen_answer_format` says where completions have their answer.
    """
    return ReasoningGym(
        task_modules=split_names(os.environ.get("REASONING_GYM_TASK_MODULES", "")),
        answer_format=chosen_answer_format(),
    )


def chosen_answer_format() -> AnswerFormat:
    """Return $REASONING_GYM_ANSWER_FORMAT, by default tags; ConfigurationError for another value.

    Frameworks create prompts and scorers in different processes: the variable reaches all.
    """
    value: Any = os.environ.get("REASONING_GYM_ANSWER_FORMAT", "") or "tags"
    formats = get_args(AnswerFormat)
    if value not in formats:
        raise ConfigurationError(
            f"$REASONING_GYM_ANSWER_FORMAT must be one of {', '.join(formats)}, got {value!r}"
        )
    chosen: AnswerFormat = value
    return chosen


def _require_marker(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value
    raise ValueError(
        f"must be what a reply follows, such as 'assistantfinal', got {shorten(value)}"
    )


@checked
def after(
    completion: Text,
    reply_after: Annotated[str | None, PlainValidator(_require_marker)],
) -> str:
    """Return what follows the first marker of a reply, for texts without special tokens.

    gpt-oss's `analysis…assistantfinal…` can't be told from a reply that begins with that word. A
    text without the marker is a thought that never ended.

    Example:
        >>> after("analysis 2 or 3?assistantfinal<answer>3</answer>", "assistantfinal")
        '<answer>3</answer>'
        >>> after("analysis <answer>3</answer>", "assistantfinal")
        ''
    """
    return completion if reply_after is None else completion.partition(reply_after)[2]


def score_by_recipe(
    recipe: str,
    completion: str,
    *,
    url: str | None = None,
    curriculum_url: str | None = None,
) -> Score:
    """Score a completion, for frameworks whose rows hold the recipe as JSON text.

    Args:
        url: of a reward service; None scores in this process's gym.
        curriculum_url: of the stream that handed the problem out, whose service scores instead;
            see `split_stream_url`.
    """
    parsed = parse_recipe(recipe)
    stream = None
    if curriculum_url is not None:
        url, stream = split_stream_url(curriculum_url)
    if url is None:
        return shared_gym().score(parsed, completion)
    [score] = RewardClient(url).score(parsed, [completion], stream=stream)
    return score


@checked
def evaluation_problems(
    gym: ReasoningGym,
    tasks: Annotated[Sequence[str], AS_LIST] = (),
    *,
    per_task: Annotated[Integer, Field(ge=1)],
    difficulty: Annotated[Number | None, Field(ge=0, le=1)] = None,
    seed: Integer = EVAL_SEED,
) -> list[Problem]:
    """Make problems of the evaluation split, whose questions training doesn't ask.

    Args:
        tasks: tasks and categories; empty means all.
        difficulty: from 0, each task's easiest level, to 1, its hardest; None is the library's
            default configuration.
        seed: `evaluate` asks the same problems with this `eval_seed`.

    Raises:
        UnknownTaskError: a name is neither a task nor a category.
    """
    summaries = gym.tasks()
    categories = {task.name: task.category for task in summaries}
    heights = {task.name: task.levels for task in summaries}
    discovery = Discovery(categories=categories, failures={}, warning=None)
    problems: list[Problem] = []
    for task in select_tasks(discovery, include=tasks):
        if not task.used:
            continue
        levels: list[int] | list[None] = [None] * per_task
        # A task with fewer than two levels has no difficulty.
        if difficulty is not None and heights[task.name] > 1:
            levels = evaluation_levels(
                difficulty,
                heights[task.name],
                eval_seed=seed,
                task=task.name,
                count=per_task,
            )
        for level, count in Counter(levels).items():
            problems += gym.problems(
                task.name, level=level, count=count, seed=seed, split="eval"
            )
    return problems


def parse_recipe(text: str) -> Mapping[str, Any]:
    """Parse a recipe's JSON text; raise ConfigurationError if it is not an object."""
    try:
        recipe = json.loads(text)
    except (RecursionError, TypeError, ValueError):
        recipe = None
    if not isinstance(recipe, dict):
        raise ConfigurationError(
            f"a recipe must be the text of a JSON object, got {shorten(text)}"
        )
    return recipe


def problem_row(
    problem: Problem, system_prompt: str, answer_format: AnswerFormat = "tags"
) -> dict[str, Any]:
    """Return the row of a problem, with the messages that the environment would send in `prompt`.

    Args:
        system_prompt: "think", "direct" or a text that explains the answer format.
        answer_format: for which the built-in prompts ask.
    """
    system = resolve_system_prompt(system_prompt, answer_format)
    return {
        "prompt": build_messages(system, problem.question),
        "question": problem.question,
        "oracle": problem.oracle,
        "task": problem.recipe.task,
        "recipe": recipe_text(problem.recipe),
    }


def demonstration(
    oracle: str, system_prompt: str, answer_format: AnswerFormat = "tags"
) -> str:
    """Format the oracle as the system prompt requires, with an empty thought if it asks for one.

    Example:
        >>> demonstration("4", "direct")
        '<answer>4</answer>'
    """
    system = resolve_system_prompt(system_prompt, answer_format)
    thinks = system == built_in_prompts(answer_format)["think"]
    thought = "<think>\n\n</think>\n\n" if thinks else ""
    return f"{thought}{shortest_reply(oracle, answer_format)}"


async def demonstration_row(
    problem: Problem, system_prompt: str, verifier: FormatVerifier
) -> dict[str, Any] | None:
    """Return a row in the layout of `export --format sft`; None unless the oracle is solved."""
    if problem.oracle is None:
        return None
    answer_format = verifier.answer_format
    text = demonstration(problem.oracle, system_prompt, answer_format)
    [(_, verdict)] = await verify_texts(
        problem,
        [text],
        verifier,
        any_form=True,
        answer_format=answer_format,
    )
    if verdict.status is not Status.SOLVED:
        return None
    system = resolve_system_prompt(system_prompt, answer_format)
    messages = build_messages(system, problem.question)
    return {
        "messages": [*messages, {"role": "assistant", "content": text}],
        "task": problem.recipe.task,
        "recipe": recipe_text(problem.recipe),
        "score": verdict.credit,
    }
