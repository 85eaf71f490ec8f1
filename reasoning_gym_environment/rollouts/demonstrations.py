"""Rows for other trainers: problems as prompts, or solved as demonstrations."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from ..inference.prompts import SYSTEM_PROMPTS, build_messages, resolve_system_prompt
from ..records import Problem, Status, recipe_text
from ..scoring.grading import Verifier, verify_texts

PROBLEM_COLUMNS = MappingProxyType(
    {"prompt": "messages", "question": "text", "oracle": "text", "task": "text", "recipe": "json"}
)
"""Kind of each column, as `storage.export` writes it. TRL's trainers read `prompt`."""


def problem_row(problem: Problem, system_prompt: str) -> dict[str, Any]:
    """Return the row of a problem, with the messages that the environment would send.

    Args:
        system_prompt: the name of a built-in prompt, or a text.
    """
    return {
        "prompt": build_messages(resolve_system_prompt(system_prompt), problem.question),
        "question": problem.question,
        "oracle": problem.oracle,
        "task": problem.recipe.task,
        "recipe": recipe_text(problem.recipe),
    }


def demonstration(oracle: str, system_prompt: str) -> str:
    """Format the oracle as the system prompt requires, with an empty thought if it asks for one.

    Example:
        >>> demonstration("4", "direct")
        '<answer>4</answer>'
    """
    thinks = resolve_system_prompt(system_prompt) == SYSTEM_PROMPTS["think"]
    thought = "<think>\n\n</think>\n\n" if thinks else ""
    return f"{thought}<answer>{oracle}</answer>"


async def demonstration_row(
    problem: Problem, system_prompt: str, verifier: Verifier
) -> dict[str, Any] | None:
    """Return the row of a solved problem in the layout of `export --format sft`.

    Returns:
        None if there is no oracle, or the task's verifier doesn't score it as solved.
    """
    if problem.oracle is None:
        return None
    text = demonstration(problem.oracle, system_prompt)
    [(_, verdict)] = await verify_texts(
        problem, [text], verifier, answer_tolerance=False, any_form=True
    )
    if verdict.status is not Status.SOLVED:
        return None
    messages = build_messages(resolve_system_prompt(system_prompt), problem.question)
    return {
        "messages": [*messages, {"role": "assistant", "content": text}],
        "task": problem.recipe.task,
        "recipe": recipe_text(problem.recipe),
        "score": verdict.score,
    }
