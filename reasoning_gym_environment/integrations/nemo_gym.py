"""Rows of NeMo Gym: what its agents send to a model, and what `POST /verify` needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import InstanceOf, SkipValidation

from ..gym.arguments import AS_LIST, checked
from ..records import Problem, Recipe, recipe_text
from ..storage.export import Item, item
from ..storage.rows import StoredGroup

__all__ = ["nemo_gym_row"]


@checked
def nemo_gym_row(
    problem: InstanceOf[Problem],
    messages: Annotated[Sequence[SkipValidation[Mapping[str, str]]], AS_LIST],
) -> dict[str, Any]:
    """Return the row of a problem whose prompt is `messages`.

    Its keys are those of NeMo Gym's own rows of reasoning-gym, and `recipe` as JSON text, since
    Arrow would add the parameters of all other tasks to every row.
    """
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
