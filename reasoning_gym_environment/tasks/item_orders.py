"""Orders of a task's items by difficulty, for tasks where no parameter changes it.

A ladder's parameter `rank` takes the item at a place of such an order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import combinations
from types import MappingProxyType
from typing import Any, NamedTuple

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
    data = entry["question"].split("results:\n")[1].split("\n\nWhat is")[0]
    results, case = data.split("\n\nNew test case:\n")
    experiments = [
        set(line.split(" → ")[0].split(", ")) for line in results.splitlines()
    ]
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
    at_least, at_most, exactly_true, number_false = map(int, numbers)
    slips = 0
    for count in range(8):
        exactly = count == exactly_true
        exactly_false = 7 - count == number_false
        holding = (count >= at_least) + (7 - count <= at_most) + exactly + exactly_false
        holding += (
            (exactly != exactly_false) + (count in (2, 3, 5, 7)) + (7 - count in (4, 6))
        )
        slips += {1: holding, -1: 7 - holding}.get(holding - count, 0)
    return (slips,)


def _ways(numbers: list[Fraction]) -> int:
    """Count the ways to combine all numbers, two at a time, into 24, for `puzzle24`."""
    if len(numbers) == 1:
        return int(numbers[0] == 24)
    ways = 0
    for i, j in combinations(range(len(numbers)), 2):
        a = numbers[i]
        b = numbers[j]
        remaining = [number for k, number in enumerate(numbers) if k not in (i, j)]
        results = [a + b, a * b, a - b, b - a]
        results += [x / y for x, y in ((a, b), (b, a)) if y]
        ways += sum(_ways([*remaining, result]) for result in results)
    return ways


def question_length(entry: Entry) -> tuple[float, ...]:
    """Return the number of characters in the question."""
    return (len(entry["question"]),)


def edges_of_one_color_in_turn(entry: Entry) -> tuple[float, ...]:
    """Return, for `graph_color`, the edges that have one color if the vertices get them in turn."""
    puzzle = entry["metadata"]["puzzle"]
    colors = puzzle["num_colors"]
    return (
        sum(
            vertex % colors == neighbor % colors for vertex, neighbor in puzzle["edges"]
        ),
    )


def differs_from(field: str) -> Callable[[Entry], tuple[float, ...]]:
    """Return the measure of whether the answer is more than a copy of what the question shows.

    Args:
        field: its name in an entry's metadata.
    """
    return lambda entry: (entry["metadata"][field] != entry["answer"],)


def cells_outside_the_largest_island(entry: Entry) -> tuple[float, ...]:
    """Return, for `largest_island`, the number of land cells of the other islands."""
    return (sum(map(sum, entry["metadata"]["grid"])) - int(entry["answer"]),)


def _several_islands(dataset: Any) -> list[Entry]:
    """Leave out grids of `largest_island` with a single island: its cells need only be counted."""
    entry = dataset[0]
    return [entry] if cells_outside_the_largest_island(entry) > (0,) else []


def _all_cases(dataset: Any) -> list[Entry]:
    """Return all test cases: `acre` makes four from each set of experiments."""
    return [dataset[index] for index in range(len(dataset.questions))]


def _executed(dataset: Any) -> list[Entry]:
    """Leave out items of `codeio` whose program failed: an empty output, or one JSON lacks."""
    try:
        entry = dataset[0]
    except TypeError:  # json.dumps, of sympy's numbers for example
        return []
    return [entry] if entry["metadata"]["output_data"] != {} else []


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "acre": Measure(
            relevant_experiments,
            6,
            same_answer=True,
            entries=_all_cases,
        ),
        "arc_agi": Measure(question_length, 8),
        "codeio": Measure(question_length, 8, entries=_executed),
        "graph_color": Measure(edges_of_one_color_in_turn, 16),
        "largest_island": Measure(
            cells_outside_the_largest_island, 16, entries=_several_islands
        ),
        "polynomial_multiplication": Measure(differs_from("polynomial_expr"), 8),
        # The fewer ways to reach 24, the harder.
        "puzzle24": Measure(
            lambda entry: (-_ways(list(map(Fraction, entry["metadata"]["numbers"]))),),
            3,
        ),
        # The number of buttons in the shortest solution.
        "quantum_lock": Measure(lambda entry: (entry["answer"].count("→") + 1,), 8),
        "rearc": Measure(question_length, 4),
        "rectangle_count": Measure(lambda entry: (int(entry["answer"]),), 4),
        "self_reference": Measure(single_error_solutions, 32, same_answer=True),
        # The number of insertions.
        "string_insertion": Measure(
            lambda entry: (len(entry["answer"]) - len(entry["metadata"]["string"]),),
            64,
        ),
        "string_manipulation": Measure(differs_from("string"), 16),
    }
)
"""Tasks with the parameter `rank`."""
