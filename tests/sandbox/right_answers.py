"""Items and right answers of the tasks whose verifiers execute answers, at every level.

The items of three tasks take minutes, so sandbox/right_answers.json keeps their answers. After an
upgrade of reasoning-gym, write them anew: PYTHONPATH=. python tests/sandbox/right_answers.py
"""

import itertools
import json
import pickle
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.tasks.datasets import Datasets
from reasoning_gym_environment.tasks.ladders import build_ladders

TABLE = Path(__file__).with_name("right_answers.json")
KEPT = ("countdown", "intermediate_integration", "puzzle24")
ITEMS_PER_LEVEL = 50


def _solvable(
    datasets: Datasets, recipes: Iterable[Recipe]
) -> Iterator[dict[str, Any]]:
    """Yield the entries of the recipes that training would use."""
    for recipe in recipes:
        try:
            problem = datasets.problem(recipe)
        except ValueError:  # the generator gave up, or the library found no answer
            continue
        yield pickle.loads(problem.entry)


def entries_by_level(
    datasets: Datasets, task: str, count: int
) -> list[list[dict[str, Any]]]:
    """Return so many entries of the default configuration and of every level."""
    made = []
    for parameters in ({}, *build_ladders([task])[task].levels):
        recipes = (
            Recipe(task=task, seed=2**41 + 101 * number, parameters=parameters)
            for number in range(20 * count)
        )
        made.append(list(itertools.islice(_solvable(datasets, recipes), count)))
        assert len(made[-1]) == count, parameters
    return made


def _made(datasets: Datasets, task: str) -> list[list[str]]:
    levels = entries_by_level(datasets, task, ITEMS_PER_LEVEL)
    return [[entry["answer"] for entry in entries] for entries in levels]


def right_answers(datasets: Datasets, task: str) -> list[list[str]]:
    """Return the answers of the default configuration and of every level, kept ones if possible."""
    if task not in KEPT:
        return _made(datasets, task)
    levels: list[list[str]] = json.loads(TABLE.read_text(encoding="utf-8"))[task]
    return levels


def main() -> None:
    """Write the table."""
    warnings.simplefilter("ignore")
    datasets = Datasets()
    table = {task: _made(datasets, task) for task in KEPT}
    text = json.dumps(table).replace("], [", "],\n [")  # a level on each line
    TABLE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
