"""Extra parameters, for tasks where none of the library's changes the difficulty.

They choose among the library's items: by rule, by template, or by rank among several candidates.
Every choice derives from the recipe's seed, so a recipe still determines its problem.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from ..records import Recipe

Entry = dict[str, Any]
"""An item of the library: question, answer, metadata."""


class Measure(NamedTuple):
    """An order of a task's items by difficulty.

    Attributes:
        difficulty: of an entry; tuples compare from the left.
        candidates: how many seeds are tried for one item.
        same_answer: compare only items with the same answer, as the task has few.
        entries: returns the usable items of a dataset.
    """

    difficulty: Callable[[Entry], tuple[float, ...]]
    candidates: int
    same_answer: bool = False
    entries: Callable[[Any], list[Entry]] = lambda dataset: [dataset[0]]


def relevant_experiments(entry: Entry) -> tuple[float, ...]:
    """Return, for `acre`, the number of experiments that show an object of the test case.

    Ties are broken by the number of all objects.
    """
    listed = entry["question"].split("results:\n")[1].split("\n\nWhat is")[0]
    results, case = listed.split("\n\nNew test case:\n")
    experiments = [set(line.split(" → ")[0].split(", ")) for line in results.splitlines()]
    tested = set(case.split(", "))
    return (
        sum(bool(experiment & tested) for experiment in experiments),
        sum(len(experiment) for experiment in experiments),
    )


def single_error_solutions(entry: Entry) -> tuple[float, ...]:
    """Return, for `self_reference`, how many single misjudgments lead to a false solution.

    A number of true statements is a solution if that many of the seven hold for it. Where one
    too many or one too few hold, misjudging one of them makes it look like a solution.
    """
    numbers = re.findall(r"(?:least|most|Exactly) (\d)", entry["question"])
    least, most, true, false = map(int, numbers)
    slips = 0
    for count in range(8):
        exactly, exactly_false = count == true, 7 - count == false
        holding = (count >= least) + (7 - count <= most) + exactly + exactly_false
        holding += (exactly != exactly_false) + (count in (2, 3, 5, 7)) + (7 - count in (4, 6))
        slips += {1: holding, -1: 7 - holding}.get(holding - count, 0)
    return (slips,)


def negative_solution_count(entry: Entry) -> tuple[float, ...]:
    """Return, for `puzzle24`, the negative number of ways to reach 24."""
    return (-_ways([Fraction(number) for number in entry["metadata"]["numbers"]]),)


def _ways(numbers: list[Fraction]) -> int:
    """Count the ways to combine all numbers, two at a time, into 24."""
    if len(numbers) == 1:
        return int(numbers[0] == 24)
    found = 0
    for i, j in combinations(range(len(numbers)), 2):
        a, b = numbers[i], numbers[j]
        rest = [number for k, number in enumerate(numbers) if k not in (i, j)]
        results = [a + b, a * b, a - b, b - a]
        results += [x / y for x, y in ((a, b), (b, a)) if y]
        found += sum(_ways([*rest, result]) for result in results)
    return found


def question_length(entry: Entry) -> tuple[float, ...]:
    """Return the number of characters in the question."""
    return (len(entry["question"]),)


def number_in_answer(entry: Entry) -> tuple[float, ...]:
    """Return the answer, which is a count."""
    return (int(entry["answer"]),)


def shortest_sequence(entry: Entry) -> tuple[float, ...]:
    """Return, for `quantum_lock`, the number of buttons in the shortest solution."""
    return (entry["answer"].count("→") + 1,)


def _all_cases(dataset: Any) -> list[Entry]:
    """Return all test cases: `acre` makes four from each set of experiments."""
    return [dataset[index] for index in range(len(dataset.questions))]


def _executed(dataset: Any) -> list[Entry]:
    """Leave out items whose program failed, which have an empty output in `codeio`."""
    entry = dataset[0]
    return [entry] if entry["metadata"]["output_data"] != {} else []


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "acre": Measure(relevant_experiments, 6, same_answer=True, entries=_all_cases),
        "arc_agi": Measure(question_length, 8),
        "codeio": Measure(question_length, 8, entries=_executed),
        "puzzle24": Measure(negative_solution_count, 3),
        "quantum_lock": Measure(shortest_sequence, 8),
        "rectangle_count": Measure(number_in_answer, 4),
        "self_reference": Measure(single_error_solutions, 32, same_answer=True),
    }
)
"""Tasks with the parameter `rank`."""


EXTRA_PARAMETERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"gsm_symbolic": ("templates",), "list_functions": ("functions",)}
    | dict.fromkeys(MEASURES, ("rank",))
)
"""Task to the names of its extra parameters.

    templates, functions: numbers of the library's generators; one of them makes the item.
    rank: in [0, 1]; the position of the item among the candidates, ordered by the task's measure.
"""

_SPLIT = 2**52


def library_parameters(task: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's parameters without the extra ones."""
    own = EXTRA_PARAMETERS.get(task, ())
    return {name: value for name, value in parameters.items() if name not in own}


def parameter_names(task: str) -> tuple[str, ...]:
    """List the parameters that a user may set: the library's, then the extra ones."""
    from reasoning_gym.factory import DATASETS  # heavy: only workers come here

    fields = dataclasses.fields(DATASETS[task][1])
    library = (field.name for field in fields if field.init and field.name not in ("seed", "size"))
    return (*library, *EXTRA_PARAMETERS.get(task, ()))


def choose_entry(recipe: Recipe, seeded: Callable[[int], Any]) -> dict[str, Any]:
    """Make the entry that a recipe's extra parameters choose, or else the library's.

    Args:
        seeded: returns the recipe's dataset for a seed; valid until the next call.

    Raises:
        ValueError: the value of an extra parameter matches no item.
    """
    parameters = recipe.parameters
    if recipe.task in MEASURES and "rank" in parameters:
        return _ranked(recipe, MEASURES[recipe.task], seeded)
    dataset = seeded(recipe.seed)
    for name in EXTRA_PARAMETERS.get(recipe.task, ()):
        if name in parameters:
            dataset.task_indices = [_number(recipe, parameters[name], dataset.generators)]
    entry: dict[str, Any] = dataset[0]
    return entry


def _number(recipe: Recipe, numbers: Sequence[int], known: Mapping[int, Any]) -> int:
    """Draw one of a task's generators, with a seed other than the item's."""
    if not numbers or not set(numbers) <= known.keys():
        raise ValueError(f"{recipe.task} has only the generators {sorted(known)}, got {numbers}")
    return Random(f"{recipe.task} {recipe.seed}").choice(numbers)


def _ranked(recipe: Recipe, measure: Measure, seeded: Callable[[int], Any]) -> dict[str, Any]:
    """Return the candidate at the rank.

    If the task has few answers, the candidates are those with the first one's answer. Otherwise
    the answer would depend on the level.
    """
    rank = float(recipe.parameters["rank"])
    if not 0 <= rank <= 1:
        raise ValueError(f"rank must be in [0, 1], got {rank}")
    found = [
        entry
        for seed in _candidate_seeds(recipe, measure.candidates)
        for entry in measure.entries(seeded(seed))
    ]
    if measure.same_answer:
        found = [entry for entry in found if entry["answer"] == found[0]["answer"]]
    found.sort(key=measure.difficulty)
    return found[round(rank * (len(found) - 1))]


def _candidate_seeds(recipe: Recipe, count: int) -> list[int]:
    """Draw seeds of the recipe's split: the lowest bit separates training and evaluation."""
    draw = Random(f"{recipe.task} {recipe.seed}")
    return [2 * draw.randrange(_SPLIT) + recipe.seed % 2 for _ in range(count)]
