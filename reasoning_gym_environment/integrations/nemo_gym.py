"""Rows of NeMo Gym: what its agents send to a model, and what `POST /verify` needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import ConfigurationError
from ..gym.arguments import require_problem
from ..records import Problem, Recipe, recipe_text
from ..storage.export import Item, item
from ..storage.rows import StoredGroup
from ..util.values import shorten

__all__ = ["nemo_gym_row"]


def nemo_gym_row(
    problem: Problem, messages: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """Return the row of a problem whose prompt is `messages`.

    Its keys are those of NeMo Gym's own rows of reasoning-gym, and `recipe` as JSON text, since
    Arrow would add the parameters of all other tasks to every row.
    """
    require_problem(problem, "problem")
    if isinstance(messages, str):
        raise ConfigurationError(
            f"messages must be a list of messages, got {shorten(messages)}"
        )
    return _row(problem.recipe, problem.question, problem.oracle, messages)


def stored_nemo_gym_rows(group: StoredGroup) -> Iterator[Item]:
    """Yield the row of a stored group's problem, which does not depend on the rollouts."""
    yield item(group, _row(group.recipe, group.question, group.oracle, group.prompt))


def _row(
    recipe: Recipe,
    question: str,
    oracle: str | None,
    messages: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [dict(message) for message in messages]},
        "question": question,
        "answer": oracle,
        "metadata": {"source_dataset": recipe.task},
        "recipe": recipe_text(recipe),
    }
