"""Problems as rows for other trainers: as prompts, or with their oracle as a demonstration."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from ..inference.prompts import SYSTEM_PROMPTS, build_messages, resolve_system_prompt
from ..records import Problem, Status, recipe_key
from ..scoring.grading import Verifier, verify_texts

PROBLEM_COLUMNS = MappingProxyType(
    {"prompt": "messages", "question": "text", "oracle": "text", "task": "text", "recipe": "json"}
)
"""Column to its kind, as `storage.export` writes it. `prompt` is what TRL's trainers read."""


def problem_row(problem: Problem, system_prompt: str) -> dict[str, Any]:
    """Make the row of a problem, with the messages that the environment would send.

    Args:
        system_prompt: a built-in one's name, or its text.
    """
    return {
        "prompt": build_messages(resolve_system_prompt(system_prompt), problem.question),
        "question": problem.question,
        "oracle": problem.oracle,
        "task": problem.recipe.task,
        "recipe": recipe_key(problem.recipe),
    }


def demonstration(oracle: str, system_prompt: str) -> str:
    """Write the oracle as the system prompt asks for answers, after a thought that is empty.

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
    """Make the row of a solved problem in the layout of `export --format sft`.

    Returns:
        None where there is no oracle, or the task's own verifier doesn't call it solved.
    """
    if problem.oracle is None:
        return None
    text = demonstration(problem.oracle, system_prompt)
    [(_, verdict)] = await verify_texts(problem, [text], verifier, answer_tolerance=False)
    if verdict.status is not Status.SOLVED:
        return None
    messages = build_messages(resolve_system_prompt(system_prompt), problem.question)
    return {
        "messages": [*messages, {"role": "assistant", "content": text}],
        "task": problem.recipe.task,
        "recipe": recipe_key(problem.recipe),
        "score": verdict.score,
    }
