"""A process that answers for one version of reasoning-gym: its tasks, items and scores.

`versions` starts it with the interpreter of either environment, so beside copies of itself and of
this project's package it needs the standard library and reasoning-gym alone. One JSON line is one
request.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import pickle
import re
import sys
from collections.abc import Iterator
from typing import Any

from reasoning_gym_environment.tasks.catalogue import read_registry
from reasoning_gym_environment.tasks.datasets import Datasets
from reasoning_gym_environment.tasks.facts import LIBRARY, NOT_A_TASK
from reasoning_gym_environment.tasks.ladders import build_ladders
from reasoning_gym_environment.tasks.recipes import read_recipe

Made = tuple[Any, Any]
"""A dataset and one of its entries."""


def describe() -> dict[str, Any]:
    """Return the version, its dependencies, and every task's parameters and levels."""
    return {
        "version": importlib.metadata.version(LIBRARY),
        "dependencies": dict(_dependencies()),
        "tasks": {
            task: _describe_task(task) for task in read_registry().keys() - NOT_A_TASK
        },
    }


def _dependencies() -> Iterator[tuple[str, str]]:
    for requirement in importlib.metadata.requires(LIBRARY) or ():
        found = re.match(r"[\w.-]+", requirement)
        if found and "extra ==" not in requirement:
            # For other systems.
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                yield found[0], importlib.metadata.version(found[0])


def _describe_task(task: str) -> dict[str, Any]:
    try:
        ladder = build_ladders([task])[task]
    except ValueError as error:
        return {"parameters": [], "levels": [], "fault": str(error)}
    return {
        "parameters": ladder.parameters,
        "levels": ladder.levels,
        "fault": ladder.reason if ladder.origin == "none" else "",
    }


def make(
    datasets: Datasets, data: dict[str, Any]
) -> tuple[dict[str, Any], Made | None]:
    """Return an item as JSON, and what scores it; None if it can't be made."""
    recipe = read_recipe(data)
    try:
        problem = datasets.problem(recipe)
        dataset = datasets.get(recipe.task, recipe.parameters)
    except Exception as error:  # noqa: BLE001 - a generator may raise anything: it is compared
        return {"error": f"{type(error).__name__}: {error}"}, None
    item = {"question": problem.question, "answer": problem.oracle, "error": ""}
    return item, (dataset, pickle.loads(problem.entry))


def score(made: Made, answers: list[str]) -> dict[str, list[float | str]]:
    """Return the scores of answers by each of the library's scorers, or what it raises."""
    dataset, entry = made
    scorers = [name for name in dir(dataset) if name.startswith("score_answer")]
    return {
        name: [_score(getattr(dataset, name), answer, entry) for answer in answers]
        for name in scorers
    }


def _score(scorer: Any, answer: str, entry: Any) -> float | str:
    try:
        return round(float(scorer(answer, entry)), 9)
    except Exception as error:  # noqa: BLE001 - a verifier may raise anything: it is compared
        return type(error).__name__


def main() -> None:
    """Serve requests from standard input; replies go where standard output was."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the library prints
    datasets = Datasets()
    made: list[Made | None] = []
    reply: Any
    for line in sys.stdin:
        request = json.loads(line)
        if "recipes" in request:
            pairs = [make(datasets, data) for data in request["recipes"]]
            reply, made = [item for item, _ in pairs], [one for _, one in pairs]
        elif "answers" in request:
            one = made[request["item"]]
            reply = {} if one is None else score(one, request["answers"])
        else:
            reply = describe()
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
