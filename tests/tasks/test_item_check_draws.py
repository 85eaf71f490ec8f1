"""Checks find faults that the library draws; two of them are so rare that a table shows 0.0 %."""

from typing import Any

import pytest

from reasoning_gym_environment.records import FaultKind, Recipe
from reasoning_gym_environment.tasks.datasets import Datasets
from reasoning_gym_environment.tasks.item_checks import item_fault

HARDEST_POLYNOMIALS = {"min_degree": 3, "max_degree": 4, "min_terms": 5, "max_terms": 6}


@pytest.mark.parametrize(
    ("task", "seed", "parameters", "kind"),
    [
        ("circuit_logic", 55433, {}, FaultKind.AMBIGUOUS),
        ("number_filtering", 3492279, {}, FaultKind.FALSE_LABEL),
        ("polynomial_equations", 17, HARDEST_POLYNOMIALS, FaultKind.FALSE_LABEL),
        (
            "propositional_logic",
            7192463212264012,
            {
                "min_vars": 4,
                "max_vars": 6,
                "min_statements": 4,
                "max_statements": 6,
                "min_complexity": 3,
                "max_complexity": 3,
            },
            FaultKind.FALSE_LABEL,
        ),
        ("simple_equations", 490289047, {}, FaultKind.UNANSWERABLE),
    ],
)
def test_a_check_finds_a_fault_that_the_library_draws(
    task: str, seed: int, parameters: dict[str, Any], kind: FaultKind
) -> None:
    entry = Datasets().entry(Recipe(task=task, seed=seed, parameters=parameters))
    fault = item_fault(task, entry)
    assert fault is not None
    assert fault.kind is kind
