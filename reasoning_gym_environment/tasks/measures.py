"""How hard a question is, for tasks whose difficulty shows only in what has been made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Measure(NamedTuple):
    """An order among the items of a task.

    Attributes:
        of: a question's difficulty; tuples compare from the left.
        candidates: how many seeds are tried for one item.
        keeps_answer: the task has few answers, and only items with the same one are compared.
        entries: the items that one seed gives.
    """

    of: Callable[[str], tuple[float, ...]]
    candidates: int
    keeps_answer: bool = False
    entries: Callable[[Any], list[dict[str, Any]]] = lambda dataset: [dataset[0]]


def bearing_experiments(question: str) -> tuple[float, ...]:
    """`acre`: how many experiments show an object of the test case, then objects in all of them."""
    results, case = (
        question.split("results:\n")[1].split("\n\nWhat is")[0].split("\n\nNew test case:\n")
    )
    experiments = [set(line.split(" → ")[0].split(", ")) for line in results.splitlines()]
    tested = set(case.split(", "))
    return (
        sum(bool(experiment & tested) for experiment in experiments),
        sum(len(experiment) for experiment in experiments),
    )


def fatal_slips(question: str) -> tuple[float, ...]:
    """`self_reference`: how many single misjudged statements make one solution too many.

    A number of true statements is a solution if that many of the seven hold for it. Where one
    too many or one too few hold, misjudging one of them makes it look like a solution.
    """
    least, most, true, false = map(int, re.findall(r"(?:least|most|Exactly) (\d)", question))
    slips = 0
    for count in range(8):
        exactly, exactly_false = count == true, 7 - count == false
        holding = (count >= least) + (7 - count <= most) + exactly + exactly_false
        holding += (exactly != exactly_false) + (count in (2, 3, 5, 7)) + (7 - count in (4, 6))
        slips += {1: holding, -1: 7 - holding}.get(holding - count, 0)
    return (slips,)


def _all_questions(dataset: Any) -> list[dict[str, Any]]:
    """`acre` makes four test cases of each set of experiments."""
    return [dataset[index] for index in range(len(dataset.questions))]


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "acre": Measure(bearing_experiments, 6, keeps_answer=True, entries=_all_questions),
        "self_reference": Measure(fatal_slips, 48, keeps_answer=True),
    }
)
"""Tasks whose items are chosen by the parameter `rank`."""
